// Package tinker implements an HTTP server for Tinker's API. Clients train adapters of the served
// model call by call, sample from any training step, and save checkpoints by name.
//
// A [Server] is an http.Handler for the paths below /api/v1. Long calls return a future at once;
// the client fetches the result by long polling. Calls of one model run in the order of their
// numbers, in whatever order they arrive. A repeated number is the same call, so a retry executes
// nothing twice.
//
// Models are trained in turns, one call each; passes over the data of several models are computed
// together. Sampling requests go to an [Engine]. Saved data is stored below one folder and outlives
// the process; unsaved data is lost with its session.
package tinker
