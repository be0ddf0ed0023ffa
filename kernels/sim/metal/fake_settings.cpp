#include "fake_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <vector>

#include "../engine/environment.h"

using lfsim::bad;
using lfsim::get;
using lfsim::number;

namespace {

// Entry is kind[:name][:n[+]] of LFSIM_METAL_FAIL.
struct Entry {
  std::string kind, name;
  uint64_t from = 1;
  bool onward = false;  // n+: this call and all after it
  uint64_t seen = 0;

  bool now() {
    seen++;
    return onward ? seen >= from : seen == from;
  }
};

// Ways in which a command buffer fails, with their MTLCommandBufferError and, for some, the text of Apple's driver.
const struct Way {
  const char* name;
  int code;
  const char* text;
} ways[] = {
    {"memory", 8, "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
    {"internal", 1, nullptr},
    {"timeout", 2, lf_timeout_text},
    {"fault", 3, nullptr},
    {"revoked", 4, nullptr},
    {"invalid", 9, nullptr},
    {"removed", 11, nullptr},
    {"stack", 12, nullptr},
    {"hang", 1, "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)"},
    {"ignored", 4, "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"},
    {"victim", 1, "Discarded (victim of GPU error/recovery) (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)"},
    {"background", 7, "Insufficient Permission (to submit GPU work from background) (00000006:kIOGPUCommandBufferCallbackErrorBackgroundExecutionNotPermitted)"},
    {"interactivity", 1, "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)"},
};

const Way* way_of(const std::string& name) {
  for (auto& w : ways) {
    if (name == w.name) return &w;
  }
  return nullptr;
}

Entry entry_of(const std::string& text, const char* all) {
  Entry e;
  size_t colon = text.find(':');
  e.kind = text.substr(0, colon);
  while (colon != std::string::npos) {
    size_t next = text.find(':', colon + 1);
    std::string part = text.substr(colon + 1, next == std::string::npos ? next : next - colon - 1);
    if (!part.empty() && part.find_first_not_of("0123456789+") == std::string::npos) {
      e.onward = part.back() == '+';
      e.from = strtoull(part.c_str(), nullptr, 10);
    } else {
      e.name = part;
    }
    colon = next;
  }
  bool known = e.kind == "alloc" || e.kind == "library" || e.kind == "pipeline" || e.kind == "lost" ||
               (e.kind == "command" && (e.name.empty() || way_of(e.name)));
  if (!known) {
    bad("LFSIM_METAL_FAIL", all,
        "entries kind[:name][:n[+]], kinds alloc, library, pipeline:KERNEL, lost, and command with memory, internal, timeout, fault, "
        "revoked, invalid, removed, stack, hang, ignored, victim, background or interactivity");
  }
  return e;
}

}  // namespace

struct lf_failures {
  std::mutex mu;
  std::vector<Entry> entries;
};

extern "C" {

lf_settings lf_settings_read(void) {
  lfsim::read_options();  // LFSIM_ORDER and its like may change with each device too
  lf_settings s{};
  s.no_device = lfsim::flag("LFSIM_METAL_NO_DEVICE");
  s.family = (int)number("LFSIM_METAL_FAMILY", 9);
  if (s.family < 5 || s.family > 10) bad("LFSIM_METAL_FAMILY", get("LFSIM_METAL_FAMILY"), "5 … 10");
  s.max_buffer = number("LFSIM_METAL_MAX_BUFFER", (uint64_t)4 << 30);
  s.memory = number("LFSIM_METAL_MEMORY", (uint64_t)8 << 30);
  s.page = number("LFSIM_METAL_PAGE", (uint64_t)getpagesize());
  if (s.page == 0 || (s.page & (s.page - 1)) != 0) bad("LFSIM_METAL_PAGE", get("LFSIM_METAL_PAGE"), "a power of two");
  if (const char* v = get("LFSIM_METAL_NO_COPY")) {
    if (!strcmp(v, "0")) {
      s.no_copy = LF_NO_COPY_NIL;
    } else if (!strcmp(v, "empty")) {
      s.no_copy = LF_NO_COPY_EMPTY;
    } else if (strcmp(v, "1")) {
      bad("LFSIM_METAL_NO_COPY", v, "0, 1 or empty");
    }
  }
  unsigned major = 4, minor = 0;
  if (const char* v = get("LFSIM_METAL_LANGUAGE")) {
    if (sscanf(v, "%u.%u", &major, &minor) != 2) bad("LFSIM_METAL_LANGUAGE", v, "a version of the shading language such as 3.1");
  }
  s.language = major << 16 | minor;
  s.patience = number("LFSIM_METAL_PATIENCE", 60000);
  s.watchdog = number("LFSIM_METAL_WATCHDOG", 0);
  s.no_residency = lfsim::flag("LFSIM_METAL_NO_RESIDENCY");
  s.failures = new lf_failures;
  if (const char* v = get("LFSIM_METAL_FAIL")) {
    std::string rest = v;
    while (!rest.empty()) {
      size_t comma = rest.find(',');
      s.failures->entries.push_back(entry_of(rest.substr(0, comma), v));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
  }
  return s;
}

void lf_settings_free(lf_settings* s) {
  delete s->failures;
  s->failures = nullptr;
}

bool lf_injected(lf_failures* f, const char* kind, const char* name) {
  std::lock_guard<std::mutex> lock(f->mu);
  bool fail = false;
  for (Entry& e : f->entries) {
    if (e.kind == kind && (e.name.empty() || e.name == name)) fail |= e.now();
  }
  return fail;
}

int lf_injected_command(lf_failures* f, const char** text) {
  std::lock_guard<std::mutex> lock(f->mu);
  const Way* way = nullptr;
  for (Entry& e : f->entries) {
    if (e.kind == "lost") {
      e.onward = true;  // a device that is lost stays so
      if (e.now()) way = way_of("removed");
    } else if (e.kind == "command" && e.now() && !way) {
      way = way_of(e.name.empty() ? "internal" : e.name);
    }
  }
  *text = way && way->text ? way->text : "injected by LFSIM_METAL_FAIL";
  return way ? way->code : 0;
}

}  // extern "C"
