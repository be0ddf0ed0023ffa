#include "environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <thread>

#include "engine.h"

namespace lfsim {

void bad(const char* variable, const char* value, const char* expected) {
  fprintf(stderr, "lfsim: %s=%s: expected %s\n", variable, value, expected);
  exit(2);
}

const char* get(const char* variable) {
  const char* v = getenv(variable);
  return v && *v ? v : nullptr;
}

uint64_t number(const char* variable, uint64_t otherwise) {
  const char* v = get(variable);
  if (!v) return otherwise;
  char* end;
  uint64_t n = strtoull(v, &end, 0);
  if (end == v) bad(variable, v, "a number");
  switch (*end) {
    case 'G':
      n <<= 10;
      [[fallthrough]];
    case 'M':
      n <<= 10;
      [[fallthrough]];
    case 'K':
      n <<= 10;
      end++;
  }
  if (*end) bad(variable, v, "a number, K, M or G behind it");
  return n;
}

bool flag(const char* variable) {
  const char* v = get(variable);
  if (!v || !strcmp(v, "0")) return false;
  if (strcmp(v, "1")) bad(variable, v, "0 or 1");
  return true;
}

void read_options() {
  Order order = Order::Forward;
  if (const char* v = get("LFSIM_ORDER")) {
    if (!strcmp(v, "reverse")) {
      order = Order::Reverse;
    } else if (!strcmp(v, "random")) {
      order = Order::Random;
    } else if (strcmp(v, "forward")) {
      bad("LFSIM_ORDER", v, "forward, reverse or random");
    }
  }
  options.order = order;
  options.seed = number("LFSIM_SEED", 1);
  options.eager_copies = flag("LFSIM_EAGER_CP");
  options.threads = (int)std::clamp<uint64_t>(number("LFSIM_THREADS", std::thread::hardware_concurrency()), 1, 256);
}

}  // namespace lfsim
