#include "msl_rewrite.h"

#include <set>

#include "msl_calls.h"
#include "msl_kernel.h"
#include "msl_tokens.h"

namespace lfmsl {

namespace {

// Features of C++ that Metal's language lacks.
const std::set<std::string> refused = {"double", "new", "delete", "try", "catch", "throw", "virtual", "goto", "dynamic_cast", "typeid", "thread_local", "asm", "__asm__", "std"};

// The keywords of Metal that carry arguments and marks; other attributes are clang's.
const std::set<std::string> attributes = {
    "buffer", "threadgroup", "max_total_threads_per_threadgroup", "thread_position_in_threadgroup", "threadgroup_position_in_grid", "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup", "threadgroups_per_grid", "thread_position_in_grid", "threads_per_grid", "thread_index_in_threadgroup", "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup", "threads_per_simdgroup", "thread_execution_width", "kernel"};

bool is_space(const Token& t) { return t.is("device") || t.is("constant") || t.is("threadgroup") || t.is("thread"); }
bool is_qualifier(const Token& t) { return is_space(t) || t.is("const") || t.is("volatile"); }

const std::set<std::string>& scalars() {
  static const std::set<std::string> s = {"bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "half", "bfloat"};
  return s;
}

// is_vector reports whether a type is a vector, such as float4.
bool is_vector(const Token& t) {
  if (t.kind != Kind::Word || t.text.size() < 4) return false;
  char n = t.text.back();
  std::string element = t.text.substr(0, t.text.size() - 1);
  if (element.compare(0, 7, "packed_") == 0) element = element.substr(7);
  return n >= '2' && n <= '4' && element != "bool" && scalars().count(element);
}

class Rewriter {
 public:
  explicit Rewriter(const Text& t) : t_(t), meeting_(meeting_functions(t)) {}

  std::string run() {
    for (size_t i = 0; i < t_.size();) i = step(i);
    if (!metal_) throw Error(t_.files.back() + ":1: error: no #include <metal_stdlib>");
    return out_ + wrappers(kernels_);
  }

 private:
  const Text& t_;
  const std::set<size_t> meeting_;  // where functions begin that must be inlined
  std::string out_;
  std::vector<Kernel> kernels_;
  bool metal_ = false;
  int braces_ = 0, parens_ = 0;
  std::string threads_;       // of an attribute, for the kernel that follows
  size_t body_ = 0;           // where the body of the kernel that was read begins
  int kernel_ = -1;           // depth of braces within it, -1 outside of kernels
  std::string alignment_;     // of alignas in front of a threadgroup array

  [[noreturn]] void refuse(size_t i, const std::string& what) const { throw Error(t_.at(i) + ": error: " + what); }

  // step rewrites the construct at i and returns the position after it.
  size_t step(size_t i) {
    const Token& t = t_[i];
    if (meeting_.count(i)) out_ += "msl_inlined ";
    if (t.kind == Kind::Directive) return directive(i);
    if (t.kind == Kind::Mark) {
      size_t past = attribute_end(t_, i);
      if (past > i) return attribute(i, past);
      mark(i);
    }
    if (t.kind == Kind::Number) return number(i);
    if (t.kind != Kind::Word) return copy(i);
    if (refused.count(t.text) && (t.text != "std" || t_.is(t_.after(i), "::"))) refuse(i, "Metal has no " + t.text);
    if (t.is("long") && t_.is(t_.after(i), "long")) refuse(i, "Metal has no long long: a long has 64 bits");
    if (t.is("if") && t_.is(t_.after(i), "constexpr")) refuse(i, "if constexpr is of C++17, Metal's language is C++14");
    if (t.is("static") && kernel_ >= 0) refuse(i, "Metal has no static variables in functions");
    if (t.is("kernel")) return kernel(i);
    if (t.is("alignas") && kernel_ >= 0) {
      size_t close = t_.closing(t_.after(i));
      if (t_.is(t_.after(close), "threadgroup")) {
        alignment_ = t_.join(t_.after(i) + 1, close);
        return close + 1;
      }
    }
    if (t.is("threadgroup") && parens_ == 0 && braces_ > 0 && declares_array(i)) return array(i);
    if (scalars().count(t.text) || is_vector(t)) check_pointer(i);
    if (is_vector(t) && t_.is(t_.after(i), "(") && constructs(i)) {
      out_ += "msl_make<" + t.text + ">";
      return i + 1;
    }
    if (t.is("vec") && t_.is(t_.after(i), "<")) {
      size_t close = t_.angle(t_.after(i));
      if (t_.is(t_.after(close), "(") && constructs(i)) {
        out_ += "msl_make<" + t_.join(i, close + 1) + ">";
        return close + 1;
      }
    }
    return copy(i);
  }

  size_t copy(size_t i) {
    out_ += t_[i].text;
    return i + 1;
  }

  // number makes a half of 1.0h, and a bfloat of 1.0bf.
  size_t number(size_t i) {
    const std::string& n = t_[i].text;
    bool hex = n.size() > 1 && (n[1] == 'x' || n[1] == 'X');
    size_t suffix = n.find_last_not_of("bfhBFH") + 1;
    std::string s = n.substr(suffix);
    if (!hex && (s == "h" || s == "H")) {
      out_ += n.substr(0, suffix) + "f16";
    } else if (!hex && (s == "bf" || s == "BF")) {
      out_ += "((bfloat)" + n.substr(0, suffix) + "f)";
    } else {
      out_ += n;
    }
    return i + 1;
  }

  size_t directive(size_t i) {
    if (t_[i].text.find("#pragma lf_metal") != 0) return copy(i);
    out_ += "#include \"lf/metal.h\"\n# " + std::to_string(t_[i].line) + " \"" + t_.files[(size_t)t_[i].file] + "\"";
    metal_ = true;
    return i + 1;
  }

  void mark(size_t i) {
    const Token& t = t_[i];
    if (t.is("(")) parens_++;
    if (t.is(")")) parens_--;
    if (t.is("{")) {
      braces_++;
      if (body_ && i == body_) kernel_ = braces_, body_ = 0;
    }
    if (t.is("}")) {
      if (braces_ == kernel_) kernel_ = -1;
      braces_--;
    }
    if (t.is("[") && kernel_ >= 0) check_lambda(i);
  }

  void check_lambda(size_t i) const {
    size_t before = t_.before(i), close = t_.closing(i);
    if (before == t_.size() || close == t_.size()) return;
    const Token& b = t_[before];
    bool subscript = b.kind == Kind::Word || b.is(")") || b.is("]") || b.is(">");
    if (!subscript && (t_.is(t_.after(close), "(") || t_.is(t_.after(close), "{"))) refuse(i, "Metal has no lambdas");
  }

  size_t attribute(size_t i, size_t past) {
    size_t name = t_.after(i + 1);
    if (!attributes.count(t_[name].text)) {
      out_ += t_.join(i, past);
      return past;
    }
    if (t_.is(name, "max_total_threads_per_threadgroup")) {
      size_t open = t_.after(name);
      threads_ = t_.join(open + 1, t_.closing(open));
    }
    for (; i < past; i++) {
      if (t_[i].text == "\n") out_ += "\n";
    }
    return past;
  }

  size_t kernel(size_t i) {
    Kernel k = read_kernel(t_, i);
    for (const Kernel& o : kernels_) {
      if (o.name == k.name) refuse(i, "kernel " + k.name + " is there twice");
    }
    for (const Parameter& p : k.parameters) {
      if (!attributes.count(p.attribute)) refuse(i, "kernel " + k.name + ": parameter " + p.name + " has an unknown attribute [[" + p.attribute + "]]");
    }
    k.threads = threads_;
    threads_.clear();
    body_ = k.body;
    kernels_.push_back(k);
    out_ += "static";
    return i + 1;
  }

  // constructs distinguishes float4(x) from float4 (*p)[2].
  bool constructs(size_t i) const {
    size_t before = t_.before(i), inner = t_.after(t_.after(i));
    bool qualified = before < t_.size() && is_qualifier(t_[before]);
    return !(qualified && (t_.is(inner, "*") || t_.is(inner, "&")));
  }

  // check_pointer refuses pointers and references to a known type without an address space.
  void check_pointer(size_t i) const {
    size_t next = t_.after(i);
    if (!t_.is(next, "*") && !t_.is(next, "&")) return;
    if (t_.is(next, "&") && t_.is(t_.after(next), "&")) return;
    for (size_t j = t_.before(i); j < t_.size() && (is_qualifier(t_[j]) || t_.is(j, "unsigned") || t_.is(j, "signed")); j = t_.before(j)) {
      if (is_space(t_[j])) return;
    }
    size_t after = next;
    while (after < t_.size() && (t_.is(after, "*") || t_.is(after, "const"))) after = t_.after(after);
    if (after < t_.size() && is_space(t_[after])) return;
    refuse(i, "a pointer or reference to " + t_[i].text + " without an address space: device, constant, threadgroup or thread");
  }

  // declares_array distinguishes a threadgroup array or variable from a pointer to one.
  bool declares_array(size_t i) const {
    for (size_t j = i + 1; j < t_.size(); j++) {
      if (t_.is(j, "*") || t_.is(j, "&") || t_.is(j, ">")) return false;
      if (t_.is(j, "<")) j = t_.angle(j);
      if (t_.is(j, "alignas")) {
        j = t_.closing(t_.after(j));
        continue;
      }
      if (t_.is(j, "(")) return false;
      if (t_.is(j, ";") || t_.is(j, "[") || t_.is(j, "=") || t_.is(j, ",")) return true;
    }
    return false;
  }

  // array makes references to the engine's memory of threadgroup T a[2], b;
  size_t array(size_t i) {
    if (kernel_ < 0) refuse(i, "threadgroup arrays are declared in kernels, and in no other function");
    size_t name = i, j = t_.after(i);
    std::string type;
    for (; !(t_.is(t_.after(j), "[") || t_.is(t_.after(j), ";") || t_.is(t_.after(j), ",") || t_.is(t_.after(j), "=")); j = t_.after(j)) {
      if (t_.is(j, "alignas")) {
        size_t close = t_.closing(t_.after(j));
        alignment_ = t_.join(t_.after(j) + 1, close);
        j = close;
        continue;
      }
      size_t end = t_.is(j, "<") ? t_.angle(j) + 1 : j + 1;
      type += t_.join(j, end) + " ";
      j = end - 1;
    }
    for (;;) {
      name = j;
      std::string dims;
      for (j = t_.after(j); t_.is(j, "["); j = t_.after(j)) {
        size_t close = t_.closing(j);
        dims += t_.join(j, close + 1);
        j = close;
      }
      declare(name, type, dims);
      if (t_.is(j, ";")) break;
      if (!t_.is(j, ",")) refuse(name, "threadgroup " + t_[name].text + ": expected ; or , behind it, found " + (j < t_.size() ? t_[j].text : "the end"));
      j = t_.after(j);
    }
    alignment_.clear();
    for (; i <= j; i++) {
      if (t_[i].text == "\n") out_ += "\n";
    }
    return j + 1;
  }

  void declare(size_t at, const std::string& type, const std::string& dims) {
    const std::string &name = t_[at].text, T = "msl_type_" + name, record = "msl_record_" + name;
    std::string flat;  // on one line
    for (char c : dims) flat += c == '\n' ? ' ' : c;
    std::string align = alignment_.empty() ? "__alignof__(" + T + ")" : "(" + alignment_ + ")";
    out_ += "using " + T + " = " + type + flat + "; static const lf_msl_shared " + record + " __attribute__((section(\"lf_msl_shared\"), used)) = {\"" + kernels_.back().name + "\", \"" + name +
            "\", sizeof(" + T + "), " + align + "}; threadgroup " + T + "& " + name + " = *(threadgroup " + T + "*)lf_msl_static(&" + record + ", __builtin_FILE(), __builtin_LINE());";
  }
};

}  // namespace

std::string rewrite(const std::string& preprocessed) {
  Text text = lex(preprocessed);
  return Rewriter(text).run();
}

}  // namespace lfmsl
