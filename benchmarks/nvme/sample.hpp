// What one measurement says, and how several are compared.
//
// A shared machine drifts by a third within minutes, so that figures of different minutes say
// nothing about each other. Contestants are measured in rounds, one after another; ratios are taken
// within a round, and their median counts. Each round has another order: who always comes after the
// same neighbour is measured with what that one leaves behind in drive and caches.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace terrace::bench {

struct Sample {
  double gbps = 0;          // 10^9 bytes of payload a second
  double cpu_s_per_gb = 0;  // of this process, kernel and its workers included
};

// The time and CPU that `work` takes for `payload_bytes`.
Sample measure(std::uint64_t payload_bytes, const std::function<void()>& work);

// The smallest value that `percent` of `values` do not exceed.
double percentile(std::vector<double> values, std::size_t percent);

class Rounds {
 public:
  void add(std::string name, std::function<Sample()> contestant);
  // One round more, whose samples do not count: pages are touched, clocks and caches are warm.
  void run(std::uint32_t rounds);

  double gbps(const std::string& name) const;
  double cpu_s_per_gb(const std::string& name) const;
  struct Ratio {
    double p25 = 0;
    double median = 0;
    double p75 = 0;
  };
  Ratio speed_ratio(const std::string& name, const std::string& other) const;
  double cpu_ratio(const std::string& name, const std::string& other) const;

 private:
  std::vector<double> ratios(const std::string& name, const std::string& other,
                             double Sample::*figure) const;

  std::vector<std::pair<std::string, std::function<Sample()>>> contestants_;
  std::map<std::string, std::vector<Sample>> samples_;
};

}  // namespace terrace::bench
