// Shots as data sets: what they hold, and everything that may be wrong in them; and any bytes as
// each data set of sequences.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_format.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/data/series_fixture.h"

namespace gyre {
namespace {

using testing::HasSubstr;

// An array of an .npz.
struct Entry {
  std::string name;
  Shape shape;
  std::vector<double> values;
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Shots : public Series {
 protected:
  void WriteShot(const std::string& name, std::vector<Entry> entries) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    std::vector<NamedTensor> tensors;
    for (Entry& entry : entries) {
      tensors.push_back({entry.name, {entry.values.data(), entry.shape, DType::kF64}});
    }
    ASSERT_TRUE(WriteNpz(folder_ / name, tensors).ok());
  }
  std::string Data(const std::string& more = "", const std::string& folder = "s") const {
    return absl::StrCat("train { shots { folder: '", folder,
                        "' signal: ['ip', 'li'] profile: 'te' length: 2 warning: 1.5 ", more,
                        " } }");
  }
};

TEST_F(Shots, AreCutIntoChunks) {
  WriteShot("s/1.npz", {{"time", {3}, {0, 1, 2}},
                        {"ip", {3}, {2, 4, 6}},
                        {"li", {3}, {-1e9, 0, 1e9}},
                        {"te", {3, 2}, {0, 2, 0, 2, 0, 2}},
                        {"event", {}, {kNan}}});
  // The same deviations; what comes after the event is left out, even what is not finite.
  Write("s/2.csv",
        "# event 3.5\r\nli, time,te[1],te[0],other,ip\r\n-1e9,1,2,0,x,-2\n0,2,2,0,,-4\n"
        "1e9,3.4,2,0,?,-6\n3,4,nan,1,1,7\n");
  Write("s/readme", "not a shot");
  const auto data = *Open(Data("clip: 2"));
  const double ip = std::sqrt(8. / 3);
  EXPECT_THAT(data->fit().at("scales.txt"), HasSubstr("ip\t1.632993161855452"));
  EXPECT_THAT(data->fit().at("scales.txt"), HasSubstr("\nte\t1\n"));
  EXPECT_EQ(data->size(), 4);
  EXPECT_THAT(data->sequences(), testing::ElementsAre(2, 2));
  const auto f = [&](double x) { return static_cast<float>(x / ip); };
  const auto li = static_cast<float>(std::sqrt(3. / 2));
  // Two signals side by side; 6 / 1.63 is beyond 2; then padding, and at the end the blank sample.
  EXPECT_EQ(All<float>(*data, "signals", 1),
            (Reals{f(2), -li, 2, 0, 2, li, 0, 0, f(-2), -li, -2, 0, -2, li, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(All<float>(*data, "te", 1),
            (Reals{0, 2, 0, 2, 0, 2, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(All<int32_t>(*data, "target", 1), (Ints{0, 0, 0, -1, 0, 1, 1, -1, -1, -1}));
  EXPECT_EQ(All<int32_t>(*data, "reset", 1), (Ints{1, 0, 0, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(All<int32_t>(*data, "length", 1), (Ints{2, 1, 2, 1, 0}));
  EXPECT_EQ(All<float>(*data, "remaining", 1),
            (Reals{1e9, 1e9, 1e9, -1, 2.5, 1.5, static_cast<float>(3.5 - 3.4), -1, -1, -1}));
  EXPECT_FALSE(ReadSample(*data, 5, 0).ok());
  EXPECT_THAT(data->notes(), testing::ElementsAre(absl::StrCat(
                                 "of ", folder_.path(),
                                 "/s 1 are left out (readme): expected .npz or .csv files")));
}

// Times in tenths, as a CSV or reals of F32 or F64 have them.  From 100 on, an F32 is rounded by
// more than a comparison with the warning time allows.
TEST_F(Shots, TheWarningTimeIsADecimal) {
  for (const int begin : {0, 1000}) {
    for (int event = 5; event < 15; ++event) {
      std::string csv = absl::StrFormat("# event %.1f\ntime,ip\n", 0.1 * (begin + event));
      std::vector<double> times, values;
      for (int t = 0; t <= event; ++t) {
        absl::StrAppendFormat(&csv, "%.1f,%d\n", 0.1 * (begin + t), t);
        times.push_back((begin + t) / 10.);
        values.push_back(t);
      }
      std::vector<float> narrow(times.begin(), times.end());
      std::vector<float> narrow_values(values.begin(), values.end());
      Write("csv/1.csv", csv);
      const Shape all({event + 1});
      WriteShot("wide/1.npz",
                {{"time", all, times}, {"ip", all, values}, {"event", {}, {times.back()}}});
      std::filesystem::create_directories(std::filesystem::path(folder_ / "narrow"));
      const std::vector<NamedTensor> tensors = {{"time", {narrow.data(), all, DType::kF32}},
                                                {"ip", {narrow_values.data(), all, DType::kF32}},
                                                {"event", {&narrow.back(), Shape{}, DType::kF32}}};
      ASSERT_TRUE(WriteNpz(folder_ / "narrow/1.npz", tensors).ok());
      for (int warning = 1; warning <= 6; ++warning) {
        for (const char* folder : {"csv", "wide", "narrow"}) {
          const auto data = *Open(absl::StrFormat(
              "train { shots { folder: '%s' signal: 'ip' length: 20 warning: %.1f } }", folder,
              0.1 * warning));
          const Ints target = All<int32_t>(*data, "target");
          EXPECT_EQ(std::ranges::count(target, 1), std::min(warning, event) + 1)
              << folder << " " << begin << " " << event << " " << warning;
        }
      }
    }
  }
}

// As spreadsheets and machines write it.
TEST_F(Shots, ACsvMayHaveCommentsQuotesAndBlankLines) {
  const std::string data =
      "train { shots { folder: 's' signal: 'ip' profile: 'te' length: 3 warning: 1 } }";
  const std::string times = "\n0,1,2\n1,2,3\n2,3,5\n";
  Write("s/1.csv", "# event 2\ntime,ip,te[0]" + times);
  const auto plain = *Open(data);
  const std::string written[] = {
      "\xef\xbb\xbf# event 2\ntime,ip,te[0]" + times, "# event 2\ntime,ip,te[0]" + times + "\n \n",
      "# of a machine\n#EVENT 2\n#\n\n\"time\", \"ip\" ,\"te[0]\"\r\n0,\"1\",2\n\n1,2,3\n2,3,5",
      "# event 2\n\"a,b\",time,ip,te[0]\n\"x \"\"y\"\"\",0,1,2\n,1,2,3\n,2,3,5\n"};
  for (const std::string& text : written) {
    std::filesystem::remove_all(folder_ / "s");
    Write("s/1.CSV", text);
    const auto read = Open(data);
    ASSERT_TRUE(read.ok()) << read.status() << text;
    for (const char* input : {"signals", "te", "remaining"}) {
      EXPECT_EQ(All<float>(**read, input), All<float>(*plain, input)) << text;
    }
  }
}

// Columns are found by name, not by going through all of them for each.
TEST_F(Shots, PointsMayBeMany) {
  constexpr int kPoints = 100'000;
  std::string names = "# event 1\ntime", zeros = "\n0", ones = "\n1";
  for (int i = 0; i < kPoints; ++i) {
    absl::StrAppend(&names, ",te[", i, "]");
    zeros += ",0";
    ones += ",1";
  }
  Write("s/1.csv", names + zeros + ones);
  const auto data = *Open("train { shots { folder: 's' profile: 'te' length: 2 warning: 1 } }");
  EXPECT_EQ(data->arrays()[0].shape, Shape({2, kPoints}));
}

// The scales are the training shots', and no test's.
TEST_F(Shots, ATestIsReadByTheScalesOfTheTraining) {
  for (const auto& [name, size] :
       {std::pair("s/a.csv", 1), {"s/b.csv", 3}, {"s/c.csv", 30}, {"s/d.csv", 1}, {"t/a.csv", 5}}) {
    Write(name, absl::StrCat("# event 2\ntime,ip\n0,", -size, "\n1,", size, "\n"));
  }
  const std::string data =
      "train { shots { folder: 's' signal: 'ip' length: 2 warning: 1 } } test { shots { folder: "
      "'t' "
      "} }";
  const auto train = *Open(data);
  EXPECT_EQ(train->fit().at("scales.txt"), "ip\t2\n");  // the median of 1, 1, 3, 30
  for (const Fit& fit : {Fit{}, train->fit()}) {
    EXPECT_EQ(All<float>(**Open(data, false, fit), "signals"), (Reals{-2.5, 2.5}));
  }
  Write("other", "ip\t4\n");
  const std::string named =
      "train { shots { folder: 's' signal: 'ip' length: 2 warning: 1 scales: 'other' } }";
  EXPECT_EQ(All<float>(**Open(named), "signals")[0], -0.25f);
  EXPECT_EQ(Error(named, true, train->fit()),
            "@other is of another run than the weights: line 1 of scales.txt is \"ip\t2\", but "
            "\"ip\t4\" here; leave it out, or name that of their run");
  for (const char* bad : {"", "li\t4\n", "ip\t0\n", "ip\tinf\n", "ip 4\n"}) {
    Write("other", bad);
    EXPECT_THAT(Error(named), HasSubstr("@other:1: expected ip TAB SCALE, more than 0, got \""));
  }
  Write("other", "ip\t4\nli\t3\n");
  EXPECT_EQ(Error(named), "@other:2: expected the end, got \"li\t3\"");
}

TEST_F(Shots, SaysWhatIsWrong) {
  const std::vector<Entry> good = {{"time", {2}, {0, 1}},
                                   {"ip", {2}, {2, 4}},
                                   {"li", {2}, {2, 4}},
                                   {"te", {2, 1}, {0, 2}},
                                   {"event", {1}, {1}}};
  const auto with = [&](Entry entry) {
    std::vector<Entry> entries = good;
    for (Entry& other : entries) {
      if (other.name == entry.name) other = entry;
    }
    WriteShot("s/1.npz", entries);
    return Error(Data());
  };
  EXPECT_EQ(with(good[0]), "");
  EXPECT_EQ(with({"ip", {2}, {2, kNan}}), "@s/1.npz: ip holds nan at time 1");
  EXPECT_EQ(with({"te", {2, 1}, {HUGE_VAL, 2}}), "@s/1.npz: te holds inf at time 0");
  EXPECT_EQ(with({"ip", {2}, {1e300, 2}}), "@s/1.npz: ip holds inf at time 0");
  EXPECT_EQ(with({"ip", {3}, {1, 2, 3}}), "@s/1.npz: ip has extents [3], but time has [2]");
  EXPECT_EQ(with({"te", {2}, {1, 2}}), "@s/1.npz: te: expected 2 to 2 axes, got [2]");
  EXPECT_EQ(with({"te", {2, 0}, {}}), "@s/1.npz: te has extents [2, 0], but time has [2]");
  EXPECT_EQ(with({"time", {2}, {1, 1}}),
            "@s/1.npz: time 1 (the first is 0) is 1; times are finite and increase");
  EXPECT_EQ(with({"time", {2}, {0, kNan}}),
            "@s/1.npz: time 1 (the first is 0) is nan; times are finite and increase");
  EXPECT_EQ(with({"event", {2}, {1, 2}}), "@s/1.npz: event: expected one number, got 2");
  EXPECT_EQ(with({"event", {1}, {-1}}), "@s/1.npz: no time up to its event at -1");
  EXPECT_EQ(with({"event", {1}, {kNan}}),
            "none of the 1 shots beside @s/1.npz has an event to be learned");
  EXPECT_EQ(with({"ip", {2}, {3, 3}}),
            "ip does not vary in half of the shots beside @s/1.npz; leave it out");
  WriteShot("s/1.npz", {good[0], good[1], good[2], good[3]});
  EXPECT_THAT(Error(Data()), HasSubstr("@s/1.npz"));
  EXPECT_THAT(Error(Data()), HasSubstr("event"));
  WriteShot("s/1.npz", good);
  WriteShot("s/2.npz", {good[0], good[1], good[2], {"te", {2, 2}, {1, 2, 3, 4}}, good[4]});
  EXPECT_EQ(Error(Data()), "@s/2.npz: te has 2 points, but 1 in @s/1.npz");
  EXPECT_EQ(Error(Data("signal: 'reset'")),
            "no signal or profile can be called \"reset\": that is taken");
  EXPECT_EQ(Error(Data("signal: 'ip'")),
            "no signal or profile can be called \"ip\": that is taken");
  EXPECT_EQ(Error(Data("", "none")), "cannot list @none: No such file or directory");
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_EQ(Error(Data("", "empty")), "@empty: no .npz or .csv file in it");
  Write("zip/1.npz", "PK");
  EXPECT_THAT(Error(Data("", "zip")), HasSubstr("@zip/1.npz"));
}

TEST_F(Shots, SaysWhichLineOfACsvIsWrong) {
  const auto error = [&](const std::string& text) {
    Write("s/1.csv", text);
    return Error("train { shots { folder: 's' signal: 'ip' profile: 'te' length: 2 warning: 1 } }");
  };
  EXPECT_EQ(error("# event 1\ntime,ip,te[0]\n0,1,2\n1,2,3\n"), "");
  EXPECT_EQ(error(""), "@s/1.csv: expected a line of names, time,..., and a line a time");
  EXPECT_EQ(error("# event 1\n"),
            "@s/1.csv: expected a line of names, time,..., and a line a time");
  EXPECT_EQ(error("# event x\ntime\n"), "@s/1.csv:1: expected \"# event\" and a time");
  EXPECT_EQ(error("# event nan\ntime\n"), "@s/1.csv:1: expected \"# event\" and a time");
  EXPECT_EQ(error("t,ip,te[0]\n"), "@s/1.csv:1: no column \"time\" among \"t,ip,te[0]\"");
  EXPECT_EQ(error("\xef\xbb\xbftime;ip\n"),
            "@s/1.csv:1: no column \"time\" among \"time;ip\"; "
            "commas separate columns");
  EXPECT_EQ(error("# event 0,5\ntime\n"),
            "@s/1.csv:1: expected \"# event\" and a time; a decimal has a point: 0.5");
  EXPECT_EQ(error("time,ip,te[0]\n0,5,2,3\n"),
            "@s/1.csv:2: 4 columns, but the names are 3; a decimal has a point, not a comma");
  EXPECT_EQ(error("time,ip,te[0]\n1,\"0,5\",3\n"),
            "@s/1.csv:2: ip: expected a number, got \"0,5\"; a decimal has a point: 0.5");
  EXPECT_EQ(error(std::string(61, 'x')),
            absl::StrCat("@s/1.csv:1: no column \"time\" among \"", std::string(60, 'x'), "\"..."));
  EXPECT_EQ(error("# event 1\ntime,te[0]\n"), "@s/1.csv:2: no column \"ip\" among \"time,te[0]\"");
  EXPECT_EQ(error("time,ip,te[1]\n"), "@s/1.csv:1: no column \"te[0]\" among \"time,ip,te[1]\"");
  EXPECT_EQ(error("time,ip,other,ip,te[0],other\n"), "@s/1.csv:1: two columns \"ip\"");
  EXPECT_EQ(error("time,time,ip,te[0]\n"), "@s/1.csv:1: two columns \"time\"");
  EXPECT_EQ(error("time,ip,te[0],te[1],te[1]\n"), "@s/1.csv:1: two columns \"te[1]\"");
  EXPECT_EQ(error(std::string("time,ip,te[0]\n1,2\0,3\n", 21)),
            "@s/1.csv:2: ip: expected a number, got \"2\\000\"");
  EXPECT_EQ(error("time,ip,te[0]\n"), "@s/1.csv: no times");
  EXPECT_EQ(error("time,ip,te[0]\n1,2,3\n2,3\n"), "@s/1.csv:3: 2 columns, but the names are 3");
  EXPECT_EQ(error("time,ip,te[0]\n1,2,\n"), "@s/1.csv:2: te[0]: expected a number, got \"\"");
  EXPECT_EQ(error("time,ip,te[0]\n1,2,3\n\n,\n"), "@s/1.csv:4: 2 columns, but the names are 3");
  EXPECT_EQ(error("time,ip,te[0]\n1,\"2,3\n"),
            "@s/1.csv:2: a quote within a cell, or one that is not closed");
  EXPECT_EQ(error("#event 1\n# event 2\ntime,ip,te[0]\n1,2,3\n"), "@s/1.csv:2: a second event");
  EXPECT_EQ(error("# Event at 1\ntime,ip,te[0]\n1,2,3\n"),
            "@s/1.csv:1: expected \"# event\" and a time");
  // A point beyond a gap would be lost.
  EXPECT_EQ(error("time,ip,te[0],te[1],te[3]\n1,2,3,4,5\n"),
            "@s/1.csv:1: a column \"te[3]\", but none \"te[2]\"");
  EXPECT_EQ(error("time,ip,te[0]\n1,nan,3\n"), "@s/1.csv: ip holds nan at time 1");
}

// ---- All of them --------------------------------------------------------------------------------

// Whatever bytes there are, a data set or an error comes.
TEST_F(Shots, AnyBytesAreReadOrRefused) {
  WriteShot("s/1.npz", {{"time", {3}, {0, 1, 2}},
                        {"ip", {3}, {2, 4, 6}},
                        {"li", {3}, {5, 0, 1}},
                        {"te", {3, 2}, {0, 2, 0, 2, 0, 2}},
                        {"event", {}, {2}}});
  Write("c/1.csv", "# event 2\nli,time,te[1],te[0],ip\n1,0,2,0,-2\n0,1,2,0,-4\n9,2,2,1,6\n");
  Write("text", "Ein Märchen.\n<unk> ok\n");
  Write("lines", "pos\tgood <br /> é\nneg\tbad\n");
  Write("r/a/1.txt", "ÉTÉ\n");
  Write("r/b/1.txt", "hiver\n");
  Write("scales", "ip\t1\nli\t2\nte\t3e-1\n");
  const struct {
    std::string file, data;
  } readers[] = {{"s/1.npz", Data()},
                 {"c/1.csv", Data("", "c")},
                 {"text", "train { text { file: 'text' length: 5 } }"},
                 {"text", "train { text { file: 'text' length: 5 unit: WORD } }"},
                 {"lines", "train { reviews { file: 'lines' length: 2 } }"},
                 {"text", "train { text { file: 'lines' vocabulary: 'text' length: 5 } }"},
                 {"r/a/1.txt", "train { reviews { folder: 'r' length: 2 } }"},
                 {"scales",
                  "train { shots { folder: 'c' signal: ['ip', 'li'] profile: 'te' length: "
                  "2 warning: 1.5 scales: 'scales' } }"}};
  std::mt19937 random(11);
  for (const auto& [file, data] : readers) {
    const std::string bytes = ReadBytes(folder_ / file);
    int read = 0;
    for (int round = 0; round < 400; ++round) {
      Write(file, Damaged(bytes, random));
      const auto opened = Open(data);
      read += opened.ok();
      EXPECT_TRUE(opened.ok() || !opened.status().message().empty());
    }
    EXPECT_LT(read, 400);
    Write(file, bytes);
  }
}

}  // namespace
}  // namespace gyre
