// Package tinker answers the clients of Tinker's API over HTTP: they train adapters of
// the model that is served call by call, sample from any step of them, and keep what they
// have trained by name.
//
// A [Server] is an http.Handler for the paths below /api/v1. Calls that take long give a
// future at once, whose answer a client fetches with a poll that is held until it is
// there. Calls of one model are computed in the order of their numbers, whatever order
// they come in, and one whose number has come before is the same call: nothing is done
// twice because a client did not get an answer.
//
// One goroutine trains, for all models in turns; what is sampled goes to an [Engine]. What
// was saved lies below one folder and outlives the process; what was not is lost with its
// session.
package tinker
