// Package engine runs models on devices. A [Runtime] has the weights of one model
// on one device, once; adapters in slots, which programs are run with in turn; and
// programs, which share an arena where they are loaded together. Loops (training,
// generating, scoring) say what their programs compute and what a run is given,
// and know neither buffers nor devices.
package engine
