// Files, folders and other programs.
#pragma once
#include <string>
#include <vector>

namespace lfmsl {

std::string read_file(const std::string& path);  // empty if there is none
void write_file(const std::string& path, const std::string& content);
bool exists(const std::string& path);
void make_folders(const std::string& path);

// here returns the folder of the library or program that contains this code.
std::string here();

// Scratch is a folder that goes with it.
class Scratch {
 public:
  explicit Scratch(const std::string& within);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Lock is a file that one process or thread holds at a time.
class Lock {
 public:
  explicit Lock(const std::string& path);
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock();

 private:
  int fd_;
};

// run_program runs a program to its end, with its output and errors in a file. It
// returns its status, -1 if it could not be started.
int run_program(const std::vector<std::string>& words, const std::string& output);

}  // namespace lfmsl
