// Every return code of the runtime that the cuda device looks at, and what a capture refuses.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "tests/any_device/try_device.h"
#include "tests/cuda/cuda_device_fixture.h"

namespace gyre {
namespace {

// --- Errors --------------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, EachCallThatFailsIsNamedAndStays) {
  const Buffer buffer = Make(10);
  ASSERT_TRUE(stream_->BeginCapture().ok());
  const auto graph = std::move(stream_->EndCapture()).value();
  const struct {
    const char* function;
    std::string call;
    std::function<absl::Status()> run;
  } kCases[] = {
      {"cudaMemcpyAsync", "cudaMemcpyAsync of 7 bytes",
       [&] { return stream_->Copy(buffer.data(), buffer.data(), 7); }},
      {"cudaEventRecord", "cudaEventRecord", [&] { return stream_->Record(*event_); }},
      {"cudaStreamWaitEvent", "cudaStreamWaitEvent", [&] { return stream_->Wait(*event_); }},
      {"cudaStreamSynchronize", "cudaStreamSynchronize", [&] { return stream_->Synchronize(); }},
  };
  for (const auto& c : kCases) {
    stream_ = NewStream();
    event_ = std::move(device_->NewEvent()).value();
    fake_cudart::FailCall(c.function, kIllegalAddress);
    const absl::Status status = c.run();
    EXPECT_EQ(status, absl::InternalError(c.call + ": an illegal memory access was encountered "
                                                   "(cudaErrorIllegalAddress)"));
    EXPECT_EQ(fake_cudart::LastError(), kSuccess);
    fake_cudart::ForgetCalls();
    EXPECT_EQ(stream_->Copy(buffer.data(), buffer.data(), 1), status);
    EXPECT_EQ(stream_->Record(*event_), status);
    EXPECT_EQ(event_->Done().status(), status);
    EXPECT_EQ(event_->Synchronize(), status);
    EXPECT_EQ(other_->Wait(*event_), status);
    EXPECT_EQ(stream_->BeginCapture(), status);
    EXPECT_EQ(graph->Replay(*stream_), status);
    EXPECT_EQ(stream_->Synchronize(), status);
    for (const char* dropped :
         {"cudaMemcpyAsync", "cudaEventRecord", "cudaGraphLaunch", "cudaStreamBeginCapture"}) {
      EXPECT_EQ(fake_cudart::Calls(dropped), 0) << dropped;
    }
    other_ = NewStream();
  }
}

TEST_F(CudaDeviceTest, EachOtherCallThatFailsIsNamed) {
  ASSERT_TRUE(stream_->BeginCapture().ok());
  const auto graph = std::move(stream_->EndCapture()).value();
  const auto capture = [&]() -> absl::Status {
    RETURN_IF_ERROR(stream_->BeginCapture());
    return stream_->EndCapture().status();
  };
  const std::pair<const char*, std::function<absl::Status()>> kCases[] = {
      {"cudaEventQuery", [&] { return event_->Done().status(); }},
      {"cudaEventSynchronize", [&] { return event_->Synchronize(); }},
      {"cudaStreamCreateWithFlags", [&] { return device_->NewStream().status(); }},
      {"cudaEventCreateWithFlags", [&] { return device_->NewEvent().status(); }},
      {"cudaStreamBeginCapture", capture},
      {"cudaStreamEndCapture", capture},
      {"cudaGraphInstantiate", capture},
      {"cudaGraphDestroy", capture},
      {"cudaGraphLaunch", [&] { return graph->Replay(*other_); }},
  };
  for (const auto& [function, run] : kCases) {
    const int alive = fake_cudart::Alive();
    fake_cudart::FailCall(function, kInvalidValue);
    EXPECT_EQ(run(), absl::InternalError(std::string(function) +
                                         ": invalid argument (cudaErrorInvalidValue)"));
    EXPECT_EQ(fake_cudart::LastError(), kSuccess);
    EXPECT_EQ(fake_cudart::Alive(), alive) << function;
  }
  EXPECT_TRUE(absl::IsInternal(other_->Synchronize()));  // the launch that failed stays
  EXPECT_TRUE(stream_->Synchronize().ok());
}

TEST_F(CudaDeviceTest, SettingTheGpuIsChecked) {
  Reboot({.gpus = {{}, {}}});
  Open({.local_rank = 1, .local_ranks = 2});
  ASSERT_TRUE(stream_->BeginCapture().ok());
  const auto graph = std::move(stream_->EndCapture()).value();
  const Buffer buffer = Make(10);
  std::vector<std::unique_ptr<Stream>> streams(6);
  for (auto& stream : streams) stream = NewStream();
  const std::function<absl::Status()> kCalls[] = {
      [&] { return event_->Done().status(); },
      [&] { return event_->Synchronize(); },
      [&] { return device_->Allocate(MemoryKind::kDevice, 10).status(); },
      [&] { return device_->NewStream().status(); },
      [&] { return device_->NewEvent().status(); },
      [&] { return streams[0]->Copy(buffer.data(), buffer.data(), 7); },
      [&] { return streams[1]->Synchronize(); },
      [&] { return streams[2]->BeginCapture(); },
      [&] { return graph->Replay(*streams[3]); },
      [&] { return streams[4]->Wait(*event_); },
      [&] { return streams[5]->Record(*event_); },
  };
  for (const auto& call : kCalls) {
    std::thread([&] {  // which begins with GPU 0
      fake_cudart::FailCall("cudaSetDevice", kInvalidValue);
      EXPECT_EQ(call(),
                absl::InternalError("cudaSetDevice: invalid argument (cudaErrorInvalidValue)"));
    })
        .join();
  }
}

// A kernel that goes wrong takes the context with it: everything that is asked later says so.
TEST_F(CudaDeviceTest, AnErrorOfTheWorkItselfComesLateAndStays) {
  const auto tells = [](const absl::Status& status) {
    return absl::IsInternal(status) &&
           absl::EndsWith(Message(status),
                          ": an illegal memory access was encountered (cudaErrorIllegalAddress)");
  };
  const Buffer buffer = Make(10);
  EXPECT_TRUE(TryDevice(*device_).ok());
  fake_cudart::FailWork(kIllegalAddress);
  EXPECT_EQ(fake_cudart::Enqueue(stream_->native(), "kernel"), kSuccess);
  EXPECT_TRUE(stream_->Record(*event_).ok());
  EXPECT_EQ(event_->Synchronize(),
            absl::InternalError("cudaEventSynchronize: an illegal memory access was encountered "
                                "(cudaErrorIllegalAddress)"));
  const absl::Status status = stream_->Synchronize();
  EXPECT_TRUE(tells(status)) << status;
  EXPECT_EQ(stream_->Record(*event_), status);
  EXPECT_EQ(event_->Done().status(), status);
  EXPECT_TRUE(tells(other_->Copy(buffer.data(), buffer.data(), 1)));
  EXPECT_TRUE(tells(other_->Synchronize()));
  EXPECT_TRUE(tells(device_->NewEvent().status()));
  EXPECT_TRUE(tells(TryDevice(*device_)));
}

// --- Captures ------------------------------------------------------------------------------------

TEST_F(CudaDeviceTest, CapturedWorkRunsWhenReplayed) {
  const Buffer from = Make(10), on_device = MakeOnDevice(10), to = Make(10);
  Set(from, 1);
  ASSERT_TRUE(stream_->BeginCapture().ok());
  EXPECT_TRUE(stream_->Copy(on_device.data(), from.data(), 10).ok());
  EXPECT_EQ(fake_cudart::Enqueue(stream_->native(), "kernel"), kSuccess);
  EXPECT_TRUE(stream_->Copy(to.data(), on_device.data(), 10).ok());
  const auto graph = stream_->EndCapture().value();
  EXPECT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(Holds(to, 0xFF));
  for (Stream* stream : {stream_.get(), other_.get(), stream_.get()}) {
    Set(from, 1 + (stream == stream_.get()));
    EXPECT_TRUE(graph->Replay(*stream).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    EXPECT_TRUE(Holds(to, 1 + (stream == stream_.get())));
  }
  const auto launches = fake_cudart::Launches();
  ASSERT_EQ(launches.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(launches[i].captured, i == 0);
    EXPECT_EQ(launches[i].replayed, i != 0);
    EXPECT_EQ(launches[i].stream, (i == 2 ? other_ : stream_)->native());
  }
}

TEST_F(CudaDeviceTest, WaitingForTheHostIsRefusedAndSpoilsTheCapture) {
  const std::pair<const char*, std::function<absl::Status()>> calls[] = {
      {"Synchronize", [&] { return stream_->Synchronize(); }},
      {"BeginCapture", [&] { return stream_->BeginCapture(); }}};
  for (const auto& [name, call] : calls) {
    ASSERT_TRUE(stream_->BeginCapture().ok());
    fake_cudart::ForgetCalls();
    const absl::Status expected =
        absl::FailedPreconditionError(std::string(name) + " within a capture");
    EXPECT_EQ(call(), expected);
    for (const char* function : {"cudaStreamSynchronize", "cudaStreamBeginCapture"}) {
      EXPECT_EQ(fake_cudart::Calls(function), 0) << function;
    }
    EXPECT_EQ(fake_cudart::Enqueue(stream_->native(), "kernel"), kSuccess);
    EXPECT_EQ(stream_->EndCapture().status(), expected);
    EXPECT_TRUE(stream_->Synchronize().ok());  // and the stream goes on
  }
  EXPECT_EQ(stream_->EndCapture().status(),
            absl::FailedPreconditionError("EndCapture without BeginCapture"));
}

// from -> on_device on a stream that forks, on_device -> to on the captured one.
TEST_F(CudaDeviceTest, AStreamForksAndJoinsWithinACapture) {
  const auto joins = std::move(device_->NewEvent()).value();
  for (const bool wait : {true, false}) {
    const Buffer from = Make(100), to = Make(100), on_device = MakeOnDevice(100);
    Set(from, 5);
    ASSERT_TRUE(stream_->BeginCapture().ok());
    EXPECT_TRUE(stream_->Record(*event_).ok());
    EXPECT_TRUE(other_->Wait(*event_).ok());
    EXPECT_TRUE(other_->Copy(on_device.data(), from.data(), 100).ok());
    EXPECT_TRUE(other_->Record(*joins).ok());
    if (wait) {
      EXPECT_TRUE(stream_->Wait(*joins).ok());
    }
    EXPECT_TRUE(stream_->Copy(to.data(), on_device.data(), 100).ok());
    EXPECT_TRUE(stream_->Wait(*joins).ok());  // or it would not be back
    const auto graph = stream_->EndCapture().value();
    EXPECT_EQ(graph->nodes(), 2u);
    EXPECT_TRUE(graph->Replay(*stream_).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    EXPECT_TRUE(Holds(to, wait ? 5 : 0xFF));
    // The stream that joined is as it was, and the events are for another capture or none.
    Set(from, 6);
    EXPECT_TRUE(other_->Copy(to.data(), from.data(), 100).ok());
    EXPECT_TRUE(other_->Record(*joins).ok());
    EXPECT_TRUE(joins->Synchronize().ok());
    EXPECT_TRUE(Holds(to, 6));
  }
}

TEST_F(CudaDeviceTest, AStreamThatIsNotBackSpoilsTheCapture) {
  const Buffer buffer = Make(10);
  for (const bool works : {false, true}) {
    ASSERT_TRUE(stream_->BeginCapture().ok());
    EXPECT_TRUE(stream_->Record(*event_).ok());
    EXPECT_TRUE(other_->Wait(*event_).ok());
    if (works) {
      EXPECT_TRUE(other_->Record(*event_).ok());
      EXPECT_TRUE(stream_->Wait(*event_).ok());
      EXPECT_TRUE(other_->Copy(buffer.data(), buffer.data(), 10).ok());
    }
    const absl::Status status = stream_->EndCapture().status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_EQ(fake_cudart::LastError(), kSuccess);
    EXPECT_TRUE(other_->Synchronize().ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
  }
}

// CUDA is not asked: what it says of them differs, and spoils more.
TEST_F(CudaDeviceTest, NoWaitCrossesTheCapturesEdge) {
  const auto outside = std::move(device_->NewEvent()).value();
  for (const bool recorded : {false, true}) {
    if (recorded) {
      EXPECT_TRUE(stream_->Record(*outside).ok());
    }
    ASSERT_TRUE(stream_->BeginCapture().ok());
    EXPECT_TRUE(stream_->Record(*event_).ok());
    fake_cudart::ForgetCalls();
    EXPECT_TRUE(absl::IsFailedPrecondition(stream_->Wait(*outside)));
    EXPECT_TRUE(absl::IsFailedPrecondition(event_->Done().status()));
    EXPECT_TRUE(absl::IsFailedPrecondition(event_->Synchronize()));
    EXPECT_TRUE(absl::IsFailedPrecondition(stream_->EndCapture().status()));
    EXPECT_TRUE(absl::IsFailedPrecondition(other_->Wait(*event_)));
    for (const char* function : {"cudaStreamWaitEvent", "cudaEventQuery", "cudaEventSynchronize"}) {
      EXPECT_EQ(fake_cudart::Calls(function), 0) << function;
    }
    EXPECT_TRUE(other_->Synchronize().ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
  }
}

TEST_F(CudaDeviceTest, WhatCannotBeCapturedIsUnimplementedAndSpoilsTheCaptureAlone) {
  int one = 1;
  const Buffer on_device = MakeOnDevice(sizeof(one));
  const std::function<absl::Status()> kCalls[] = {
      [&] { return stream_->Copy(on_device.data(), &one, sizeof(one)); },  // pageable
      [&] { return stream_->Call([] { return absl::OkStatus(); }); },
      [&] {  // a library that allocates behind the caller's back
        return device_->Allocate(MemoryKind::kDevice, 1).status();
      },
  };
  for (const auto& call : kCalls) {
    ASSERT_TRUE(stream_->BeginCapture().ok());
    EXPECT_TRUE(absl::IsUnimplemented(call()));
    EXPECT_TRUE(absl::IsUnimplemented(stream_->EndCapture().status()));
    EXPECT_TRUE(stream_->Copy(on_device.data(), &one, sizeof(one)).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
  }
}

// The thread that decodes batches must not care what the training thread is about.
TEST_F(CudaDeviceTest, OtherThreadsWorkDuringACapture) {
  EXPECT_TRUE(other_->Record(*event_).ok());
  ASSERT_TRUE(stream_->BeginCapture().ok());
  std::thread([&] {
    const Buffer buffer = Make(10);
    EXPECT_TRUE(other_->Copy(buffer.data(), buffer.data(), 10).ok());
    EXPECT_TRUE(event_->Done().ok());
    EXPECT_TRUE(event_->Synchronize().ok());
    EXPECT_TRUE(other_->Synchronize().ok());
  }).join();
  EXPECT_TRUE(stream_->EndCapture().ok());
}

TEST_F(CudaDeviceTest, AStreamMayGoDuringACapture) {
  ASSERT_TRUE(stream_->BeginCapture().ok());
  stream_.reset();
}

}  // namespace
}  // namespace gyre
