// Package mpi connects the processes of an MPI job as the ranks of a dist.World. It is
// built with the tag mpi or cuda on Linux, and registers itself with package dist.
//
// The MPI library is loaded at run time, without cgo: Open MPI 4 or 5, MPICH and its
// derivatives (Intel MPI, Cray), or a library with the standard ABI of MPI 5. The library
// of the launcher is tried first; LORAFUSE_LIBMPI is the path of another one.
//
// MPI moves bytes and never adds. It has no timeouts, so all calls are made by one thread,
// which polls requests and gives them up when the context of a call ends.
package mpi
