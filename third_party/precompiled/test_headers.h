// test_headers.h: the headers that are precompiled for tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "third_party/precompiled/common_headers.h"
