#include "nvme/sample.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace terrace::bench {
namespace {

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Sample measure(std::uint64_t payload_bytes, const std::function<void()>& work) {
  const double cpu_before = cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const double gigabytes = static_cast<double>(payload_bytes) / 1e9;
  return {gigabytes / wall.count(), (cpu_seconds() - cpu_before) / gigabytes};
}

double percentile(std::vector<double> values, std::size_t percent) {
  std::ranges::sort(values);
  return values[(values.size() * percent + 99) / 100 - 1];
}

void Rounds::add(std::string name, std::function<Sample()> contestant) {
  samples_[name];
  contestants_.emplace_back(std::move(name), std::move(contestant));
}

void Rounds::run(std::uint32_t rounds) {
  std::mt19937 random(1);
  for (std::uint32_t round = 0; round <= rounds; ++round) {
    std::ranges::shuffle(contestants_, random);
    for (const auto& [name, contestant] : contestants_) {
      const Sample sample = contestant();
      if (round > 0) samples_[name].push_back(sample);
    }
  }
}

double Rounds::gbps(const std::string& name) const {
  std::vector<double> values;
  for (const Sample& sample : samples_.at(name)) values.push_back(sample.gbps);
  return percentile(values, 50);
}

double Rounds::cpu_s_per_gb(const std::string& name) const {
  std::vector<double> values;
  for (const Sample& sample : samples_.at(name)) values.push_back(sample.cpu_s_per_gb);
  return percentile(values, 50);
}

std::vector<double> Rounds::ratios(const std::string& name, const std::string& other,
                                   double Sample::*figure) const {
  const std::vector<Sample>& ours = samples_.at(name);
  const std::vector<Sample>& theirs = samples_.at(other);
  std::vector<double> values;
  for (std::size_t i = 0; i < ours.size(); ++i)
    values.push_back(ours[i].*figure / theirs[i].*figure);
  return values;
}

Rounds::Ratio Rounds::speed_ratio(const std::string& name, const std::string& other) const {
  const std::vector<double> values = ratios(name, other, &Sample::gbps);
  return {percentile(values, 25), percentile(values, 50), percentile(values, 75)};
}

double Rounds::cpu_ratio(const std::string& name, const std::string& other) const {
  return percentile(ratios(name, other, &Sample::cpu_s_per_gb), 50);
}

}  // namespace terrace::bench
