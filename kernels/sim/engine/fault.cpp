// Faults of kernels: the signal handler sends the fiber to a function that
// ends the launch with a message, so that the process lives on.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <mutex>

#include "block.h"

namespace lfsim {

static constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction previous[NSIG];
static thread_local void* fault_address;
static thread_local int fault_signal;
static thread_local uintptr_t fault_code;

// report runs on the stack of the fiber that faulted, from its top.
[[noreturn]] static void report() {
  Block& b = *running;
  std::string at;
  if (options.code_addresses) at = to_string(Site::code(reinterpret_cast<void*>(fault_code))) + ": ";
  if (fault_signal == SIGFPE) b.fail(Outcome::Failed, at + "integer division by zero");
  if (fault_signal == SIGILL) b.fail(Outcome::IllegalInstruction, at + "illegal instruction, or a trap");
  char text[64];
  snprintf(text, sizeof text, "illegal address %p", fault_address);
  std::string s = at + text;
  for (unsigned i = 0; i < b.threads; i++) {
    if (b.fibers[i].stack.overflown_at(fault_address)) {
      b.fail(Outcome::Failed, s + ": the stack of thread " + std::to_string(i) + " has overflown (" + std::to_string(Stack::size / 1024) + " KiB)");
    }
  }
  std::string where = b.shared.describe(fault_address);
  if (where.empty() && describe_address) where = describe_address(fault_address);
  if (!where.empty()) s += ": " + where;
  b.fail(Outcome::IllegalAddress, s);
}

static void on_fault(int sig, siginfo_t* info, void* context) {
  if (running && current) {
    fault_address = info->si_addr;
    fault_signal = sig;
    auto& m = static_cast<ucontext_t*>(context)->uc_mcontext;
    auto top = ((uintptr_t)self()->stack.top() - 4160) & ~(uintptr_t)15;  // the state saved by prepare is no longer needed
#if defined(__x86_64__)
    fault_code = (uintptr_t)m.gregs[REG_RIP];
    m.gregs[REG_RSP] = (greg_t)(top - 8);
    m.gregs[REG_RIP] = (greg_t)(uintptr_t)&report;
#else
    fault_code = m.pc;
    m.sp = top;
    m.pc = (uintptr_t)&report;
#endif
    return;
  }
  const struct sigaction& old = previous[sig];
  if (old.sa_flags & SA_SIGINFO) {
    old.sa_sigaction(sig, info, context);
  } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
    old.sa_handler(sig);
  } else {
    signal(sig, SIG_DFL);
    raise(sig);
  }
}

void install_fault_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (int sig : signals) {
      struct sigaction a;
      memset(&a, 0, sizeof a);
      a.sa_sigaction = on_fault;
      a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigaction(sig, &a, &previous[sig]);
    }
  });
}

// A stack that has overflown cannot run the handler.
namespace {
struct SignalStack {
  static constexpr size_t size = 64 * 1024;
  void* memory = nullptr;

  SignalStack() {
    stack_t old;
    sigaltstack(nullptr, &old);
    if (!(old.ss_flags & SS_DISABLE)) return;  // the sanitizer's, or Go's
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t s{};
    s.ss_sp = memory;
    s.ss_size = size;
    sigaltstack(&s, nullptr);
  }
  ~SignalStack() {
    if (!memory) return;
    stack_t s{};
    s.ss_flags = SS_DISABLE;
    sigaltstack(&s, nullptr);
    munmap(memory, size);
  }
};
}  // namespace

void prepare_thread() {
  static thread_local SignalStack stack;
  (void)stack;
}

}  // namespace lfsim
