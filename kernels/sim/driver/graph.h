// Graphs: work with its dependencies, written by hand or by capturing streams,
// and executable copies of them.
#pragma once
#include <memory>
#include <vector>

#include "stream.h"

namespace lfsim {

struct Graph;

struct Node {
  Graph* graph;
  size_t index;  // in order of making, which is a topological order of captures
  std::shared_ptr<Work> work;
  std::vector<Node*> needs;
  std::shared_ptr<Graph> child;  // of a node that is a graph
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;

  Node* add(std::shared_ptr<Work> work, const std::vector<Node*>& needs);
  bool owns(const void* node) const;
  std::shared_ptr<Graph> clone() const;

  // sort orders the nodes so that each follows its dependencies. It returns
  // false if there is a cycle. options.order chooses among ready nodes:
  // results that change with it reveal a missing dependency.
  bool sort(std::vector<Node*>* order) const;
};

// GraphExec is the state of a graph at its instantiation.
struct GraphExec {
  std::shared_ptr<Graph> graph;     // own copy
  const Graph* source;              // whose nodes name ours, by index
  std::vector<Node*> order;
};

// flatten lists the work of sorted nodes, that of graphs inside of them in place.
bool flatten(const Graph& g, std::vector<std::shared_ptr<Work>>* work);

}  // namespace lfsim
