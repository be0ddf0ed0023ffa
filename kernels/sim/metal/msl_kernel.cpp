#include "msl_kernel.h"

#include <algorithm>

#include "msl_rewrite.h"

namespace lfmsl {

size_t attribute_end(const Text& t, size_t i) {
  if (!t.is(i, "[") || !t.is(i + 1, "[")) return i;
  size_t end = t.closing(i);
  return end < t.size() ? end + 1 : i;
}

// read_parameter reads the words from i to end.
static Parameter read_parameter(const Text& t, size_t i, size_t end, const std::string& kernel) {
  Parameter p;
  std::vector<std::string> words;
  size_t first = i;
  for (; i < end; i++) {
    if (t[i].blank()) continue;
    size_t past = attribute_end(t, i);
    if (past > i) {
      size_t name = t.after(i + 1), open = t.after(name);
      p.attribute = t[name].text;
      if (t.is(open, "(")) p.argument = t.join(open + 1, t.closing(open));
      i = past - 1;
      continue;
    }
    words.push_back(t[i].text);
  }
  if (words.size() < 2) throw Error(t.at(first) + ": error: kernel " + kernel + ": expected a parameter with type and name, found \"" + t.join(first, end) + "\"");
  p.name = words.back();
  words.pop_back();
  for (const std::string& w : words) {
    if (w == "&") {
      p.reference = true;
    } else {
      p.type += (p.type.empty() ? "" : " ") + w;
    }
  }
  auto has = [&](const char* w) { return std::find(words.begin(), words.end(), w) != words.end(); };
  std::string what = t.at(first) + ": error: kernel " + kernel + ": parameter " + p.name;
  if (p.attribute.empty()) throw Error(what + " has no attribute, such as [[buffer(0)]]");
  if (p.attribute == "buffer") {
    if (!has("*") && !p.reference) throw Error(what + " is a buffer, and neither a pointer nor a reference");
    if (!has("device") && !has("constant")) throw Error(what + " is a buffer, and neither device nor constant");
  } else if (p.attribute == "threadgroup") {
    if (!has("*") || !has("threadgroup")) throw Error(what + " is [[threadgroup]], and no threadgroup pointer");
  } else if (has("*") || p.reference) {
    throw Error(what + " is a pointer with the attribute [[" + p.attribute + "]]");
  }
  return p;
}

Kernel read_kernel(const Text& t, size_t i) {
  size_t result = t.after(i), name = t.after(result), open = t.after(name);
  if (!t.is(result, "void")) throw Error(t.at(i) + ": error: a kernel returns void, not " + (result < t.size() ? t[result].text : "nothing"));
  Kernel k;
  k.name = name < t.size() ? t[name].text : "";
  if (!t.is(open, "(")) throw Error(t.at(i) + ": error: kernel " + k.name + ": expected its parameters; instances of templates are written as kernels of their own");
  size_t end = t.closing(open);
  size_t first = open + 1;
  for (size_t j = open + 1; j <= end && j < t.size(); j++) {
    if (j < end && (t.is(j, "(") || t.is(j, "["))) {
      j = t.closing(j);
    } else if (j < end && t.is(j, "<")) {
      j = t.angle(j);
    } else if (j == end || t.is(j, ",")) {
      if (t.after(first - 1) < j) k.parameters.push_back(read_parameter(t, t.after(first - 1), j, k.name));
      first = j + 1;
    }
  }
  k.body = t.after(end);
  if (!t.is(k.body, "{")) throw Error(t.at(i) + ": error: kernel " + k.name + ": expected its body behind its parameters");
  return k;
}

std::string wrappers(const std::vector<Kernel>& kernels) {
  std::string out = "\n# 1 \"wrappers of kernels\"\n", table;
  for (const Kernel& k : kernels) {
    std::string call, params;
    unsigned n = 0;
    for (const Parameter& p : k.parameters) {
      call += call.empty() ? "" : ", ";
      std::string index = "(" + p.argument + ")";
      auto describe = [&](const char* kind, const std::string& pointee) {
        params += std::string("{") + kind + ", " + index + ", sizeof(" + pointee + "), __alignof__(" + pointee + "), \"" + p.name + "\"}, ";
        n++;
      };
      if (p.attribute == "buffer" && p.reference) {
        call += "*(" + p.type + "*)msl_args->buffer[" + index + "]";
        describe("LF_MSL_REFERENCE", p.type);
      } else if (p.attribute == "buffer") {
        call += "(" + p.type + ")msl_args->buffer[" + index + "]";
        describe("LF_MSL_BUFFER", "*(" + p.type + ")nullptr");
      } else if (p.attribute == "threadgroup") {
        call += "(" + p.type + ")lf_msl_dynamic(msl_args, " + index + ")";
        describe("LF_MSL_THREADGROUP", "*(" + p.type + ")nullptr");
      } else {
        call += "msl_thread_is." + p.attribute + "<" + p.type + ">()";
      }
    }
    out += "static void msl_call_" + k.name + "(const lf_msl_args* msl_args) { (void)msl_args; const msl_attributes msl_thread_is; " + k.name + "(" + call + "); }\n";
    out += "static const lf_msl_param msl_params_" + k.name + "[] = {" + params + "{LF_MSL_BUFFER, 0, 0, 0, nullptr}};\n";
    table += "{\"" + k.name + "\", msl_call_" + k.name + ", msl_params_" + k.name + ", " + std::to_string(n) + ", " + (k.threads.empty() ? "0" : "(" + k.threads + ")") + "}, ";
  }
  out += "static const lf_msl_kernel msl_kernels[] = {" + table + "{nullptr, nullptr, nullptr, 0, 0}};\n";
  out += "extern \"C\" __attribute__((visibility(\"default\"))) const lf_msl_library lf_msl_table = {msl_kernels, " + std::to_string(kernels.size()) +
         ", __start_lf_msl_shared, __stop_lf_msl_shared};\n";
  return out;
}

}  // namespace lfmsl
