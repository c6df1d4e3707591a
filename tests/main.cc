// The main of every test binary: GoogleTest, and defaults for the sanitizers.
//
// The sanitizers call the functions below before main, which makes the defaults part of the binary:
// a test behaves the same under Bazel, under mpirun and by hand.  *_OPTIONS variables still win.

#include <gtest/gtest.h>

#if defined(__SANITIZE_THREAD__)
#include <unistd.h>

#include <cstdlib>
#endif

extern "C" {

#if defined(__SANITIZE_ADDRESS__)
// Leaks count, except under mpirun: see mpirun_test.sh.
const char* __asan_default_options();
const char* __asan_default_options() {
  return "detect_stack_use_after_return=1:strict_init_order=1";
}
#endif

#if defined(__SANITIZE_THREAD__)
const char* __tsan_default_options();
const char* __tsan_default_options() { return "halt_on_error=1:second_deadlock_stack=1"; }

const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() {
  return "called_from_lib:libgomp.so\n"
         "called_from_lib:libdnnl.so\n"
         "deadlock:libgdal.so\n";
}
#endif

const char* __ubsan_default_options();
const char* __ubsan_default_options() { return "print_stacktrace=1"; }

}  // extern "C"

int main(int argc, char** argv) {
#if defined(__SANITIZE_THREAD__)
  // libgomp is not instrumented: TSan does not see its barriers and reports every hand-over between
  // parallel regions as a race.  One OpenMP thread leaves our own threads to be checked.  libgomp
  // reads the variable before any code of ours runs, hence the second start.
  if (getenv("OMP_THREAD_LIMIT") == nullptr) {
    setenv("OMP_THREAD_LIMIT", "1", 1);
    execv("/proc/self/exe", argv);
  }
#endif
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
