#include "serve/demo/prompt.hpp"

#include <array>

namespace terrace::demo {
namespace {

constexpr std::array kWinds = {"north", "north-east", "east", "south-east",
                               "south", "south-west", "west"};
constexpr std::array kSights = {
    "A brig under full sail passed close to the reef", "Two fishing boats came in before dark",
    "The mail steamer was late, and hooted twice", "No sail all day, only gannets",
    "A schooner anchored in the lee of the island"};
constexpr std::array kChores = {
    "Trimmed the wicks and cleaned the lens.", "Painted the rail of the gallery.",
    "Carried eleven cans of oil up the stairs.", "Mended the rope of the signal mast."};

// The periods 7, 5, 4 and 31 have no common factor, so the days repeat after 4,340 only; the number
// never does.
std::string day(std::size_t number) {
  return "Day " + std::to_string(number) + ". Wind from the " + kWinds[number % kWinds.size()] +
         ", " + std::to_string(5 + number % 31) + " knots. " + kSights[number % kSights.size()] +
         ". " + kChores[number % kChores.size()] + "\n";
}

}  // namespace

std::string lighthouse_log(std::size_t bytes) {
  std::string text = "The log of the lighthouse.\n";
  for (std::size_t number = 1; text.size() < bytes; ++number) text += day(number);
  text.resize(bytes);
  return text;
}

}  // namespace terrace::demo
