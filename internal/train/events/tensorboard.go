package events

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TensorBoard writes scalars and pictures as an event file of TensorBoard.
type TensorBoard struct {
	f   *os.File
	now func() time.Time
	buf []byte
}

const (
	eventFilePrefix = "events.out.tfevents."
	eventFileSuffix = ".lorafuse"
)

// OpenTensorBoard starts a new event file in the folder dir, which is created if missing, for the steps after the
// given one: Fresh for a new run, the step of the checkpoint for a resumed one. Later events are removed from
// existing files of this package, and a running TensorBoard is told to discard them.
func OpenTensorBoard(dir string, after int64) (*TensorBoard, error) {
	return openTensorBoard(dir, after, time.Now)
}

func openTensorBoard(dir string, after int64, now func() time.Time) (*TensorBoard, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	last, err := cutEvents(dir, after)
	if err != nil {
		return nil, err
	}
	// TensorBoard reads the files of a folder in the order of their names:
	// this one must come last, whatever the clock says.
	f, err := os.OpenFile(filepath.Join(dir, nextEventFile(last, now())), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	tb := &TensorBoard{f: f, now: now}
	err = tb.append(versionEvent(tb.seconds()))
	if err == nil && last != "" {
		err = tb.append(startEvent(tb.seconds(), after+1))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return tb, nil
}

// Write appends a record. Tags are grouped as in transformers: eval_loss is eval/loss, loss is train/loss.
// TensorBoard stores float32.
func (tb *TensorBoard) Write(r Record) error {
	return tb.append(scalarsEvent(tb.seconds(), r))
}

// Sync flushes the file to the disk. Call it before a checkpoint.
func (tb *TensorBoard) Sync() error { return tb.f.Sync() }

// Close syncs and closes the file.
func (tb *TensorBoard) Close() error { return errors.Join(tb.f.Sync(), tb.f.Close()) }

// append writes an event in one write, so that readers see whole ones.
func (tb *TensorBoard) append(event []byte) error {
	tb.buf = appendFrame(tb.buf[:0], event)
	_, err := tb.f.Write(tb.buf)
	return err
}

func (tb *TensorBoard) seconds() float64 { return float64(tb.now().UnixNano()) / 1e9 }

func tag(name string) string {
	if rest, ok := strings.CutPrefix(name, "eval_"); ok {
		return "eval/" + rest
	}
	return "train/" + name
}

// cutEvents removes the events after a step and returns the name of the last event file, "" if there is none.
func cutEvents(dir string, after int64) (last string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), eventFilePrefix) {
			continue
		}
		last = max(last, e.Name())
		if !strings.HasSuffix(e.Name(), eventFileSuffix) {
			continue // another program's
		}
		path := filepath.Join(dir, e.Name())
		end, err := keptEvents(path, after)
		if err != nil {
			return "", err
		}
		if end == 0 {
			err = os.Remove(path)
		} else {
			err = os.Truncate(path, end)
		}
		if err != nil {
			return "", err
		}
	}
	return last, nil
}

// keptEvents returns the length of the prefix of an event file without events after the step; 0 if no scalar remains.
// An incomplete event at the end is not included.
func keptEvents(path string, after int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	var end int64
	some := false
	for {
		event, size, err := readFrame(r)
		if errors.Is(err, io.EOF) || errors.Is(err, errFrame) {
			break
		}
		if err != nil {
			return 0, err
		}
		step, scalars, err := parseEvent(event)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		if scalars && step > after {
			break
		}
		some = some || scalars
		end += size
	}
	if !some {
		end = 0
	}
	return end, nil
}

// nextEventFile returns a name that sorts after last.
func nextEventFile(last string, now time.Time) string {
	seconds := now.Unix()
	for {
		name := fmt.Sprintf("%s%010d%s", eventFilePrefix, seconds, eventFileSuffix)
		if name > last {
			return name
		}
		var number int64
		if n, err := fmt.Sscanf(last, eventFilePrefix+"%d", &number); n != 1 || err != nil {
			return last + eventFileSuffix
		}
		seconds = max(seconds, number) + 1
	}
}
