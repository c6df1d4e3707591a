// What an MPI, any that compiles this, takes for a sum of F32 over ranks, in place: MPI_Allreduce,
// and the ring of whole chunks that deep learning began with (baidu-allreduce's: a chunk is sent
// and received, then added).  A JSON line for each size, from rank 0; medians over rounds.
//   mpicxx -O3 -march=native sums_mpi.cc; mpirun -np 2 ./a.out LABEL ROUNDS BYTES...

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

struct MpiRing {
  int rank, size;
  std::vector<float> arrived;

  void Sum(std::vector<float>& data) {
    const auto begin = [&](int chunk) {
      return data.size() * static_cast<size_t>((chunk % size + size) % size) / size;
    };
    const auto count = [&](int chunk) {
      const size_t c = static_cast<size_t>((chunk % size + size) % size);
      return static_cast<int>(data.size() * (c + 1) / size - data.size() * c / size);
    };
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int step = 0; step + 1 < size; ++step) {
      const int out = rank - step, in = rank - step - 1;
      MPI_Request request;
      MPI_Irecv(arrived.data(), count(in), MPI_FLOAT, last, 0, MPI_COMM_WORLD, &request);
      MPI_Send(&data[begin(out)], count(out), MPI_FLOAT, next, 0, MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      float* const to = &data[begin(in)];
      for (int i = 0; i < count(in); ++i) to[i] += arrived[i];
    }
    for (int step = 0; step + 1 < size; ++step) {
      const int out = rank + 1 - step, in = rank - step;
      MPI_Sendrecv(&data[begin(out)], count(out), MPI_FLOAT, next, 0, &data[begin(in)], count(in),
                   MPI_FLOAT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
};

template <typename SumOnce>
double Median(int rounds, int sums, const SumOnce& sum) {
  std::vector<double> seconds;
  for (int round = 0; round <= rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < sums; ++i) sum();
    if (round > 0) seconds.push_back((MPI_Wtime() - begin) / sums);  // the first warms up
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MpiRing ring{};
  MPI_Comm_rank(MPI_COMM_WORLD, &ring.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ring.size);
  const std::string label = argv[1];
  for (int a = 3; a < argc; ++a) {
    const size_t bytes = std::strtoull(argv[a], nullptr, 10);
    std::vector<float> data(bytes / sizeof(float));
    ring.arrived.resize(data.size() / ring.size + 1);
    const auto check = [&](const char* what, const auto& sum) {
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>((i + ring.rank) % 7);
      sum();
      for (size_t i = 0; i < data.size(); ++i) {
        float expected = 0;
        for (int r = 0; r < ring.size; ++r) expected += static_cast<float>((i + r) % 7);
        if (data[i] == expected) continue;
        std::fprintf(stderr, "%s: element %zu is %g, expected %g\n", what, i, data[i], expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      std::fill(data.begin(), data.end(), 0.0F);
    };
    const int sums = static_cast<int>(std::clamp<size_t>((2 << 20) / (bytes + 1), 1, 1000));
    const auto measure = [&](const std::string& what, const auto& sum) {
      check(what.c_str(), sum);
      const double median = Median(std::atoi(argv[2]), sums, sum);
      if (ring.rank != 0) return;
      std::printf("{\"algorithm\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"median_us\": %.3f}\n",
                  what.c_str(), ring.size, bytes, median * 1e6);
      std::fflush(stdout);
    };
    measure(label, [&] {
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
    measure("unsegmented ring, " + label, [&] { ring.Sum(data); });
  }
  MPI_Finalize();
}
