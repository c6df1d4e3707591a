#include "tools/command_line/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

namespace gyre {
namespace {

// Of a waiting OpenMP thread, some 50 ns each, before it sleeps.  On two cores of an idle machine a
// step of LeNet takes as long as with libgomp's 300,000; beside two other busy threads a tenth.
constexpr char kSpins[] = "6000";

// Allocates nothing.
[[noreturn]] void EndWith(const char* line, size_t bytes) {
  if (write(STDERR_FILENO, line, bytes) < 0) _exit(kExitFailed);
  _exit(kExitFailed);
}

// Of any thread: nothing is allocated here.
[[noreturn]] void OnTerminate() {
  const char *what = "a broken invariant", *about = "";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    what = "out of memory";
  } catch (const std::system_error& thrown) {
    // What std::thread and std::async throw says of no thread.
    if (thrown.code() == std::errc::resource_unavailable_try_again) {
      about = "cannot start a thread (ulimit -u bounds their number, ulimit -v their memory): ";
    }
    what = thrown.what();
  } catch (const std::exception& thrown) {
    what = thrown.what();
  } catch (...) {
  }
  char line[256];
  const int size = std::snprintf(line, sizeof(line), "error: %s%s\n", about, what);
  EndWith(line, static_cast<size_t>(size));
}

// A file that is mapped, of pages or of ranks' shared memory, has no bytes where they are read.
[[noreturn]] void OnBusError(int) {
  constexpr char kLine[] =
      "error: a file that is mapped to memory has been cut, or its disk does not answer (SIGBUS); "
      "resume from the last checkpoint\n";
  EndWith(kLine, sizeof(kLine) - 1);
}

}  // namespace

void LetWaitingThreadsSleep(char** argv) {
  for (const char* chosen : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
                             // libgomp has bound this thread to a core, where the program started
                             // anew would stay with all of its threads.
                             "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    const char* const value = std::getenv(chosen);
    if (value != nullptr && *value != '\0') return;
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  setenv("GOMP_SPINCOUNT", kSpins, 1);
  execv(self.c_str(), argv);  // where it returns, it could not, and threads wait as they always do
}

void PrepareProcess() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // Read-only, so that printing to it fails as it would have.
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", O_RDONLY);
  }
  // Room for the longest --help: what a write fails of is known at the end alone (FinishOutput).
  static char output[1 << 16];
  std::setvbuf(stdout, output, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, sizeof(output));
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGBUS, OnBusError);
  std::set_terminate(OnTerminate);
}

int FinishOutput(int exit_code) {
  errno = 0;
  if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || exit_code != 0) return exit_code;
  std::fprintf(stderr, "error: cannot write standard output%s%s\n", errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
  return kExitFailed;
}

}  // namespace gyre
