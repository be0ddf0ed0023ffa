//go:build linux && (mpi || cuda)

package main

import _ "github.com/lorafuse/lorafuse/dist/mpi" // connects the ranks that an MPI launcher starts
