// The element types a checkpoint may have, and their exact conversion to float32.
//
// Every F16 and BF16 value, subnormals and infinities included, has an exact float32: conversion
// never rounds.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace terrace::engine {

// Bytes an element of the safetensors dtype `name` takes; 0 where the name is unknown.
std::uint32_t dtype_bytes(std::string_view name) noexcept;

enum class FloatType : std::uint8_t { f32, f16, bf16 };

// The float type of a safetensors dtype, or nothing where the engine cannot compute with it.
std::optional<FloatType> float_type(std::string_view name) noexcept;

// REQUIRES: `from` holds to.size() little-endian elements of `type`; no alignment is needed.
void convert_to_f32(FloatType type, std::span<const std::byte> from, std::span<float> to) noexcept;

}  // namespace terrace::engine
