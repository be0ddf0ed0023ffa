//go:build cuda && linux

package cuda

// SmallStretches makes the loss of a head take 128 rows at a time. It returns what
// undoes that.
func SmallStretches() (undo func()) {
	bytes, rows := logitBytes, logitRows
	logitBytes, logitRows = 0, largeTile
	return func() { logitBytes, logitRows = bytes, rows }
}
