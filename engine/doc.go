// Package engine runs models on devices. A [Runtime] has the weights of one model
// on one device, once; adapters in slots, which programs are run with in turn, or
// with several at once, each for rows of its own; and programs, which share an arena
// where they are loaded together. Loops (training, generating, scoring) say what
// their programs compute and what a run is given, and know neither buffers nor
// devices.
package engine
