// Graphs made by hand, and their execution.
#include "copy.h"
#include "launch.h"

using namespace lfsim;

namespace {

struct GraphWork : Work {
  std::shared_ptr<GraphExec> exec;
  std::vector<std::shared_ptr<Work>> work;  // its state when the launch was requested
  abi::NodeType type() const override { return abi::NodeGraph; }
  abi::Result run() override {
    for (auto& w : work) {
      if (abi::Result r = w->run()) return r;
    }
    return abi::Success;
  }
};

std::shared_ptr<Graph> graph_of(void* handle) {
  auto g = state().graphs.get(handle);
  if (!g) complain("%p is not a graph, or one that was destroyed", handle);
  return g;
}

abi::Result add(void** made, void* graph, void* const* needs, size_t n, std::shared_ptr<Work> work, std::shared_ptr<Graph> child = nullptr) {
  Lock lock(state().mu);
  auto g = graph_of(graph);
  if (!g) return abi::InvalidHandle;
  std::vector<Node*> nodes;
  for (size_t i = 0; i < n; i++) {
    if (!g->owns(needs[i])) return refuse(abi::InvalidValue, "%p is not a node of the graph", needs[i]);
    nodes.push_back(static_cast<Node*>(needs[i]));
  }
  Node* node = g->add(std::move(work), nodes);
  node->child = std::move(child);
  *made = node;
  return abi::Success;
}

// node_of checks that a node belongs to a graph that lives.
bool known(void* node) {
  for (auto& [key, g] : state().graphs.all()) {
    if (g->owns(node)) return true;
  }
  complain("%p is not a node of a graph", node);
  return false;
}

}  // namespace

LFSIM_API cuGraphCreate(void** graph, unsigned flags) {
  ENTER(context);
  if (flags) return abi::InvalidValue;
  Lock lock(state().mu);
  *graph = state().graphs.add(std::make_shared<Graph>());
  return abi::Success;
}

LFSIM_API cuGraphDestroy(void* graph) {
  Lock lock(state().mu);
  return state().graphs.erase(graph) ? abi::Success : refuse(abi::InvalidHandle, "%p is not a graph, or one that was destroyed", graph);
}

LFSIM_API cuGraphClone(void** clone, void* graph) {
  Lock lock(state().mu);
  auto g = graph_of(graph);
  if (!g) return abi::InvalidHandle;
  *clone = state().graphs.add(g->clone());
  return abi::Success;
}

LFSIM_API cuGraphAddKernelNode_v2(void** node, void* graph, void* const* needs, size_t n, const abi::KernelNodeParams* p) {
  ENTER(context);
  std::shared_ptr<KernelWork> w;
  if (abi::Result r = make_kernel(context, {p->function, p->gx, p->gy, p->gz, p->bx, p->by, p->bz, p->shared, p->params, p->extra}, &w)) return r;
  return add(node, graph, needs, n, w);
}

LFSIM_API cuGraphAddMemcpyNode(void** node, void* graph, void* const* needs, size_t n, const abi::Memcpy3D* p, void*) {
  ENTER(context);
  std::shared_ptr<CopyWork> w;
  Flow flow{Side::Either, Side::Either, true};
  if (abi::Result r = make_copy(context, *p, &w, &flow)) return r;
  return add(node, graph, needs, n, w);
}

LFSIM_API cuGraphAddMemsetNode(void** node, void* graph, void* const* needs, size_t n, const abi::MemsetNodeParams* p, void*) {
  ENTER(context);
  std::shared_ptr<FillWork> w;
  if (abi::Result r = make_fill(context, *p, &w)) return r;
  return add(node, graph, needs, n, w);
}

LFSIM_API cuGraphAddHostNode(void** node, void* graph, void* const* needs, size_t n, const abi::HostNodeParams* p) { return add(node, graph, needs, n, std::make_shared<HostWork>(p->fn, p->data)); }

LFSIM_API cuGraphAddEmptyNode(void** node, void* graph, void* const* needs, size_t n) { return add(node, graph, needs, n, std::make_shared<EmptyWork>()); }

LFSIM_API cuGraphAddChildGraphNode(void** node, void* graph, void* const* needs, size_t n, void* child) {
  std::shared_ptr<Graph> c;
  {
    Lock lock(state().mu);
    c = graph_of(child);
  }
  if (!c) return abi::InvalidHandle;
  return add(node, graph, needs, n, std::make_shared<EmptyWork>(), c->clone());
}

LFSIM_API cuGraphAddDependencies(void* graph, void* const* from, void* const* to, size_t n) {
  Lock lock(state().mu);
  auto g = graph_of(graph);
  if (!g) return abi::InvalidHandle;
  for (size_t i = 0; i < n; i++) {
    if (!g->owns(from[i]) || !g->owns(to[i])) return refuse(abi::InvalidValue, "a dependency between nodes of another graph");
    static_cast<Node*>(to[i])->needs.push_back(static_cast<Node*>(from[i]));
  }
  return abi::Success;
}
LFSIM_API cuGraphAddDependencies_v2(void* graph, void* const* from, void* const* to, const void*, size_t n) { return cuGraphAddDependencies(graph, from, to, n); }

LFSIM_API cuGraphGetNodes(void* graph, void** nodes, size_t* n) {
  Lock lock(state().mu);
  auto g = graph_of(graph);
  if (!g) return abi::InvalidHandle;
  if (nodes) {
    for (size_t i = 0; i < *n; i++) nodes[i] = i < g->nodes.size() ? g->nodes[i].get() : nullptr;
  } else {
    *n = g->nodes.size();
  }
  return abi::Success;
}

LFSIM_API cuGraphGetEdges(void* graph, void** from, void** to, size_t* n) {
  Lock lock(state().mu);
  auto g = graph_of(graph);
  if (!g) return abi::InvalidHandle;
  size_t k = 0;
  for (auto& node : g->nodes) {
    for (Node* need : node->needs) {
      if (from && k < *n) from[k] = need, to[k] = node.get();
      k++;
    }
  }
  if (!from) *n = k;
  return abi::Success;
}
LFSIM_API cuGraphGetEdges_v2(void* graph, void** from, void** to, void*, size_t* n) { return cuGraphGetEdges(graph, from, to, n); }

LFSIM_API cuGraphNodeGetType(void* node, int* type) {
  Lock lock(state().mu);
  if (!known(node)) return abi::InvalidHandle;
  auto* n = static_cast<Node*>(node);
  *type = n->child ? abi::NodeGraph : n->work->type();
  return abi::Success;
}

LFSIM_API cuGraphInstantiateWithFlags(void** handle, void* graph, unsigned long long) {
  ENTER(context);
  if (injected("graph")) return refuse(abi::OutOfMemory, "injected: the graph is not instantiated");
  Lock lock(state().mu);
  auto g = graph_of(graph);
  if (!g) return abi::InvalidHandle;
  auto e = std::make_shared<GraphExec>();
  e->graph = g->clone();
  e->source = g.get();
  std::vector<std::shared_ptr<Work>> work;
  if (!flatten(*e->graph, &work)) return refuse(abi::InvalidValue, "the nodes of the graph depend on each other");
  *handle = state().execs.add(e);
  return abi::Success;
}

LFSIM_API cuGraphExecDestroy(void* handle) {
  Lock lock(state().mu);
  return state().execs.erase(handle) ? abi::Success : refuse(abi::InvalidHandle, "%p is not an executable graph, or one that was destroyed", handle);
}

LFSIM_API cuGraphExecKernelNodeSetParams_v2(void* handle, void* node, const abi::KernelNodeParams* p) {
  ENTER(context);
  std::shared_ptr<KernelWork> w;
  if (abi::Result r = make_kernel(context, {p->function, p->gx, p->gy, p->gz, p->bx, p->by, p->bz, p->shared, p->params, p->extra}, &w)) return r;
  Lock lock(state().mu);
  auto e = state().execs.get(handle);
  if (!e) return refuse(abi::InvalidHandle, "%p is not an executable graph, or one that was destroyed", handle);
  if (!known(node)) return abi::InvalidHandle;
  auto* n = static_cast<Node*>(node);
  if (n->graph != e->source || n->work->type() != abi::NodeKernel) return refuse(abi::InvalidValue, "the node is no kernel of the graph that was instantiated");
  e->graph->nodes[n->index]->work = w;
  return abi::Success;
}

LFSIM_API cuGraphUpload(void* handle, void*) {
  ENTER(context);
  Lock lock(state().mu);
  return state().execs.get(handle) ? abi::Success : refuse(abi::InvalidHandle, "%p is not an executable graph, or one that was destroyed", handle);
}

LFSIM_API cuGraphLaunch(void* handle, void* stream) {
  ENTER(context);
  auto w = std::make_shared<GraphWork>();
  {
    Lock lock(state().mu);
    w->exec = state().execs.get(handle);
    if (!w->exec) return refuse(abi::InvalidHandle, "%p is not an executable graph, or one that was destroyed", handle);
    flatten(*w->exec->graph, &w->work);
  }
  return submit(context, stream, w);
}
