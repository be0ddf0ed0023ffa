#include "graph.h"

#include <algorithm>

#include "../engine/engine.h"

namespace lfsim {

Node* Graph::add(std::shared_ptr<Work> work, const std::vector<Node*>& needs) {
  nodes.push_back(std::make_unique<Node>(Node{this, nodes.size(), std::move(work), needs, nullptr}));
  return nodes.back().get();
}

bool Graph::owns(const void* node) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](auto& n) { return n.get() == node; });
}

std::shared_ptr<Graph> Graph::clone() const {
  auto g = std::make_shared<Graph>();
  for (auto& n : nodes) {
    Node* made = g->add(n->work, {});
    if (n->child) made->child = n->child->clone();
  }
  for (auto& n : nodes) {
    for (Node* need : n->needs) g->nodes[n->index]->needs.push_back(g->nodes[need->index].get());
  }
  return g;
}

bool Graph::sort(std::vector<Node*>* order) const {
  std::vector<size_t> missing(nodes.size());
  std::vector<std::vector<Node*>> wanted_by(nodes.size());
  std::vector<Node*> ready;
  for (auto& n : nodes) {
    missing[n->index] = n->needs.size();
    for (Node* need : n->needs) wanted_by[need->index].push_back(n.get());
    if (n->needs.empty()) ready.push_back(n.get());
  }
  uint64_t random = options.seed * 0x9e3779b97f4a7c15ull | 1;
  order->clear();
  while (!ready.empty()) {
    auto earlier = [](Node* a, Node* b) { return a->index < b->index; };
    auto it = std::min_element(ready.begin(), ready.end(), earlier);
    if (options.order == Order::Reverse) it = std::max_element(ready.begin(), ready.end(), earlier);
    if (options.order == Order::Random) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      it = ready.begin() + (long)(random % ready.size());
    }
    Node* n = *it;
    ready.erase(it);
    order->push_back(n);
    for (Node* w : wanted_by[n->index]) {
      if (--missing[w->index] == 0) ready.push_back(w);
    }
  }
  return order->size() == nodes.size();
}

bool flatten(const Graph& g, std::vector<std::shared_ptr<Work>>* work) {
  std::vector<Node*> order;
  if (!g.sort(&order)) return false;
  for (Node* n : order) {
    if (n->child) {
      if (!flatten(*n->child, work)) return false;
    } else {
      work->push_back(n->work);
    }
  }
  return true;
}

}  // namespace lfsim
