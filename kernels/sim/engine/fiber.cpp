#include "fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <new>

namespace lfsim {

static constexpr size_t page = 4096;

void Stack::reserve() {
  if (base_) return;
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  mprotect(p, page, PROT_NONE);
  base_ = static_cast<char*>(p);
}

void Stack::release() {
  if (base_) munmap(base_, size);
  base_ = nullptr;
}

bool Stack::overflown_at(const void* address) const {
  auto* p = static_cast<const char*>(address);
  return base_ && p >= base_ && p < base_ + page;
}

// The registers that a function must keep, as the calling conventions have
// them. Kernels do not change rounding modes, so those stay.
#if defined(__x86_64__)
asm(R"(
.text
.globl lfsim_switch
.hidden lfsim_switch
.type lfsim_switch,@function
lfsim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lfsim_switch,.-lfsim_switch
)");

void prepare(Context& context, Stack& stack, unsigned color, void (*entry)()) {
  auto** sp = reinterpret_cast<void**>(stack.top() - 64 - color % 64 * 64);
  *--sp = nullptr;  // where entry would return to; it also aligns the stack
  *--sp = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  context.sp = sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl lfsim_switch
.hidden lfsim_switch
.type lfsim_switch,%function
lfsim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size lfsim_switch,.-lfsim_switch
)");

void prepare(Context& context, Stack& stack, unsigned color, void (*entry)()) {
  auto* sp = reinterpret_cast<uintptr_t*>(stack.top() - 64 - color % 64 * 64 - 160);
  memset(sp, 0, 160);
  sp[11] = reinterpret_cast<uintptr_t>(entry);  // x30, where ret goes
  context.sp = sp;
}
#endif

}  // namespace lfsim
