package cli

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
)

// logForm is the format of a log: text or json.
type logForm string

// UnmarshalText sets the format. The flag has checked the word.
func (f *logForm) UnmarshalText(text []byte) error {
	*f = logForm(text)
	return nil
}

func (f logForm) logger(w io.Writer) *slog.Logger {
	if f == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: inSeconds}))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// inSeconds formats durations in JSON records in seconds instead of nanoseconds.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}

// logLines makes a record of each line that is written to it.
type logLines struct {
	log *slog.Logger

	mu   sync.Mutex
	rest []byte // of a line that has not ended
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.log.Info(string(line))
		}
		l.rest = rest
	}
}
