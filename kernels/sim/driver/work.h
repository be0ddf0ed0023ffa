// The kinds of work that touch memory: kernels, copies, fills, and allocations
// in the order of a stream.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "memory.h"
#include "state.h"

namespace lfsim {

struct KernelWork : Work {
  Function* function = nullptr;
  const KernelDef* kernel = nullptr;
  dim3 grid, block;
  unsigned dynamic_shared = 0, shared_limit = 0;
  int device = 0;
  std::vector<uint64_t> cells;  // parameters, each in a cell of 8 bytes

  abi::NodeType type() const override { return abi::NodeKernel; }
  abi::Result run() override;

 private:
  bool foreign_pointer(std::string* why) const;
};

// Slab is one side of a copy: depth slices of height rows.
struct Slab {
  char* base = nullptr;
  size_t pitch = 0, slice = 0;
};

struct CopyWork : Work {
  Slab dst, src;
  size_t width = 0, height = 1, depth = 1;
  std::shared_ptr<std::vector<char>> staged;  // src, where the driver has taken a copy

  abi::NodeType type() const override { return abi::NodeMemcpy; }
  abi::Result run() override;
};

struct FillWork : Work {
  char* dst = nullptr;
  size_t pitch = 0, width = 0, height = 1;  // width in elements
  unsigned value = 0, element = 1;

  abi::NodeType type() const override { return abi::NodeMemset; }
  abi::Result run() override;
};

// OpenWork and FreeWork begin and end an allocation in the order of a stream.
struct OpenWork : Work {
  uintptr_t begin;
  explicit OpenWork(uintptr_t b) : begin(b) {}
  bool always() const override { return true; }
  abi::Result run() override;
};

struct FreeWork : Work {
  uintptr_t begin;
  explicit FreeWork(uintptr_t b) : begin(b) {}
  bool always() const override { return true; }
  abi::Result run() override;
};

// RecordWork records when a stream reaches a mark.
struct RecordWork : Work {
  std::shared_ptr<Mark> mark;
  explicit RecordWork(std::shared_ptr<Mark> m) : mark(std::move(m)) {}
  abi::NodeType type() const override { return abi::NodeEventRecord; }
  bool always() const override { return true; }
  abi::Result run() override;
};

}  // namespace lfsim
