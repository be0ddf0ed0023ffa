//go:build noplot

package events

import "errors"

// Errors of plotting.
var (
	ErrNoLoss = errors.New("no loss among the records")
	ErrFormat = errors.New("unknown image format")
)

var errNoPlot = errors.New("this program was built without plots (tag noplot)")

// PlotLoss fails: fonts are much of a program that is carried.
func PlotLoss(string, string, []Record) error { return errNoPlot }

// RenderLoss fails, as [PlotLoss] does.
func RenderLoss(string, string, []Record) ([]byte, error) { return nil, errNoPlot }
