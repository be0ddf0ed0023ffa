package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// deviceCount returns the number of devices of the backend under test.
func deviceCount(t *testing.T) int {
	n, err := backend.Count(testdevice.Backend())
	require.NoError(t, err)
	return n
}

// openOn opens a run on the last devices of the backend. If it has fewer, ranks share devices.
func openOn(t *testing.T, c *config.Config, size int) *train.Run {
	n := deviceCount(t)
	own := *c
	var indices []int
	for i := range size {
		indices = append(indices, n-1-i%n)
	}
	var r *train.Run
	var err error
	switch {
	case size < n:
		require.NoError(t, own.Set("devices="+strings.ReplaceAll(fmt.Sprint(indices), " ", ", ")))
		r, err = train.New(context.Background(), &own, train.Observer{})
	case size == n:
		require.NoError(t, own.Set("devices=all"))
		r, err = train.New(context.Background(), &own, train.Observer{})
	default:
		r, err = train.NewOnDevices(&own, indices...)
	}
	require.NoError(t, err)
	return r
}

// TestShareOfDevices: one process on several devices leaves the records, the adapter and the
// moments of a run on the first.
func TestShareOfDevices(t *testing.T) {
	for _, run := range []struct {
		precision string
		micros    int
		sets      []string
	}{
		{"f32", 4, []string{"quantize=int8"}},
		{"bf16", 3, nil},
	} {
		t.Run(fmt.Sprint(run.precision, " ", run.micros), func(t *testing.T) {
			c := interruptibleRun(t, t.TempDir(), append([]string{"eval_steps=1", "steps=2", "save_steps=1", "precision=" + run.precision, fmt.Sprint("gradient_accumulation_steps=", run.micros)}, run.sets...))
			s, err := trainUntil(t, context.Background(), c)
			require.NoError(t, err)
			want, tensors := outcomeOf(t, c, s), checkpointHashes(t, c.OutputDir)
			for size := 1; size <= run.micros; size++ {
				require.NoError(t, os.RemoveAll(c.OutputDir))
				leaks := goleak.IgnoreCurrent() // a device that is not closed has a goroutine
				r := openOn(t, c, size)
				s, err = r.Train(context.Background())
				r.Close()
				goleak.VerifyNone(t, leaks)
				require.NoError(t, err)
				require.Equal(t, want, outcomeOf(t, c, s), "%d devices", size)
				require.Equal(t, tensors, checkpointHashes(t, c.OutputDir), "%d devices", size)
			}
		})
	}
}

// TestDevicesRefused: an error of the ranks is that of the run, and the folder is free again.
func TestDevicesRefused(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"steps=1", "gradient_accumulation_steps=4"})
	_, err := train.NewOnDevices(c, 0, 0, 0, 0, 0)
	require.ErrorContains(t, err, "4 micro-batches of a step, for 5 ranks")
	require.NotErrorIs(t, err, train.ErrElsewhere)

	n := deviceCount(t)
	require.NoError(t, c.Set(fmt.Sprintf("devices=[0, %d]", n)))
	_, err = train.New(context.Background(), c, train.Observer{})
	require.ErrorContains(t, err, fmt.Sprintf("devices: found device %d, expected 0", n))
	require.NoError(t, c.Set("devices=0"))
	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	r.Close()
}

// TestDevicesOfTwoKinds: devices that may compute different bits do not share steps.
func TestDevicesOfTwoKinds(t *testing.T) {
	const name = "two kinds"
	backend.Register(name, backend.Driver{Rank: -1, Devices: func() ([]backend.Info, error) {
		return []backend.Info{
			{Backend: name, Name: "A100", Detail: "compute capability 8.0"},
			{Backend: name, Name: "H100", Detail: "compute capability 9.0", Index: 1},
			{Backend: name, Name: "A100", Detail: "compute capability 8.0", Index: 2},
		}, nil
	}})
	require.NoError(t, train.Alike(name, []int{2, 0}))
	require.NoError(t, train.Alike(name, []int{1}))
	require.EqualError(t, train.Alike(name, []int{0, 2, 1}), "train: devices: found two kinds:0, A100 (compute capability 8.0), and two kinds:1, "+
		"H100 (compute capability 9.0), expected devices of one kind; list some of one kind, such as devices: [0]")
}

var lostDevice = regexp.MustCompile(`cuda: device (\d+): device lost`)

// TestLostDevice: a run that loses a device ends with an error that names it, and the others
// go on from its last checkpoint to the same bytes. The simulator loses the device of the
// launch that LFSIM_FAIL names.
func TestLostDevice(t *testing.T) {
	if os.Getenv("LFSIM_FAIL") == "" {
		t.Skip("no device fails: scripts/cuda_goldens.sh sets LFSIM_FAIL")
	}
	leaks := goleak.IgnoreCurrent()
	dir := t.TempDir()
	c := interruptibleRun(t, dir, []string{"eval_steps=2", "steps=3", "save_steps=1", "gradient_accumulation_steps=4"})
	r := openOn(t, c, deviceCount(t))
	_, err := r.Train(context.Background())
	r.Close()
	goleak.VerifyNone(t, leaks)
	require.Error(t, err)
	t.Log(err)
	require.Regexp(t, lostDevice, err.Error())
	lost := lostDevice.FindStringSubmatch(err.Error())
	latest, fault := train.LatestCheckpoint(c.OutputDir)
	require.NoError(t, fault)
	require.NotEmpty(t, latest)

	other := "0"
	if lost[1] == other {
		other = "1"
	}
	again, alone := *c, *c
	again.Resume = "latest"
	alone.OutputDir = filepath.Join(dir, "alone")
	index, err := strconv.Atoi(other)
	require.NoError(t, err)
	require.NoError(t, alone.Set("devices="+other))
	s, err := trainUntil(t, context.Background(), &alone)
	require.NoError(t, err)
	want := outcomeOf(t, &alone, s)
	r, err = train.NewOnDevices(&again, index, index)
	require.NoError(t, err)
	s, err = r.Train(context.Background())
	r.Close()
	require.NoError(t, err)
	require.Equal(t, want, outcomeOf(t, &again, s))
}
