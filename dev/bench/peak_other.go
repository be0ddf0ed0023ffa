//go:build !darwin

package bench

func peakRSS() int64 { return 0 }
