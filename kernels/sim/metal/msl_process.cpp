#include "msl_process.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "msl_rewrite.h"

extern char** environ;

namespace lfmsl {

std::string read_file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream f(path, std::ios::binary);
  f.write(content.data(), (std::streamsize)content.size());
  f.close();
  if (!f) throw Error("the shader compiler cannot write " + path);
}

bool exists(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0;
}

void make_folders(const std::string& path) {
  for (size_t i = 1; i <= path.size(); i++) {
    if (i < path.size() && path[i] != '/') continue;
    std::string part = path.substr(0, i);
    if (mkdir(part.c_str(), 0777) && errno != EEXIST) throw Error("the shader compiler cannot make the folder " + part + ": " + strerror(errno));
  }
}

std::string here() {
  Dl_info info;
  std::string path;
  if (dladdr(reinterpret_cast<void*>(&here), &info) && info.dli_fname) {
    if (char* real = realpath(info.dli_fname, nullptr)) {
      path = real;
      free(real);
    }
  }
  // A program calls itself what its caller said.
  if (path.empty() || path.find(".so") == std::string::npos) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    if (n > 0) path.assign(self, (size_t)n);
  }
  return path.substr(0, path.rfind('/'));
}

Scratch::Scratch(const std::string& within) : path_(within + "/tmpXXXXXX") {
  if (!mkdtemp(&path_[0])) throw Error("the shader compiler cannot make a folder in " + within + ": " + strerror(errno));
}

Scratch::~Scratch() {
  if (DIR* d = opendir(path_.c_str())) {
    while (dirent* e = readdir(d)) unlink((path_ + "/" + e->d_name).c_str());
    closedir(d);
  }
  rmdir(path_.c_str());
}

Lock::Lock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw Error("the shader compiler cannot open " + path + ": " + strerror(errno));
  while (flock(fd_, LOCK_EX) && errno == EINTR) {
  }
}

Lock::~Lock() { close(fd_); }

int run_program(const std::vector<std::string>& words, const std::string& output) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid;
  int failed = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return -1;
  int status;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace lfmsl
