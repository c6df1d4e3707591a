// sanitized.h: whether a sanitizer watches.  It makes a test many times slower, and sees in its
// first rounds what it can see: a test that is long because it tries much tries less then.
#pragma once

namespace gyre {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace gyre
