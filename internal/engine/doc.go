// Package engine runs models on devices. A [Runtime] holds one copy of a model's weights on
// one device, adapters in slots, and compiled programs. A program runs with one slot at a
// time, or with several at once, each applied to its own rows. Programs that are loaded
// together share an arena. Loops (training, generating, scoring) describe what their programs
// compute and pass the arrays of each run; they do not handle buffers or devices.
package engine
