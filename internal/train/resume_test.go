package train_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// childEnv makes this test binary train as a program of its own would, so that
// it can be killed: it holds the folder of the run.
const childEnv = "LORAFUSE_TEST_TRAIN_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	c, err := config.Load(filepath.Join(dir, "train.yaml"), "resume=latest")
	if err != nil {
		return err
	}
	if c.Jobs.Len() > 0 {
		return childOfJobs(c)
	}
	r, err := train.New(context.Background(), c, train.Observer{})
	if errors.Is(err, train.ErrNothingToResume) {
		c.Resume = ""
		r, err = train.New(context.Background(), c, train.Observer{})
	}
	if err != nil {
		return err
	}
	defer r.Close()
	s, err := r.Train(context.Background())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(peak{Planned: s.Memory.Resident(), Measured: peakMemory()})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, peakFile), raw, 0o666)
}

// runChild trains in dir in a process of its own.
func runChild(t *testing.T, dir string) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
}

// killChild trains in dir in a process of its own, and kills it as soon as a file of pattern is
// there: kill -9, of which a process does not learn.
func killChild(t *testing.T, dir, pattern string) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+dir)
	require.NoError(t, c.Start())
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			break
		}
	}
	_ = c.Process.Kill()
	_ = c.Wait()
}

// writeRun writes the data and the settings of a run with all that could make
// a resumed one differ: dropout, accumulation, packing, shuffling.
func writeRun(t *testing.T, dir string) *config.Config {
	model, err := filepath.Abs("../../testdata/lm/llama/model")
	require.NoError(t, err)
	var rows strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 90 {
		text := strings.Repeat(fmt.Sprintf("row %d counts to %d. ", i, random.IntN(1000)), 1+random.IntN(4))
		fmt.Fprintf(&rows, "{\"text\": %q}\n", text)
	}
	require.NoError(t, os.MkdirAll(dir, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "train.jsonl"), []byte(rows.String()), 0o666))
	yaml := fmt.Sprintf(`
model: %s
output_dir: %s
adapter: {r: 4, lora_alpha: 8, target_modules: all-linear, lora_dropout: 0.1}
data: {train: %s, max_length: 96, packing: true, shuffle: true}
batch_size: 1
gradient_accumulation_steps: 4
steps: 24
learning_rate: 0.01
schedule: cosine
warmup_steps: 3
weight_decay: 0.1
save_steps: 2
save_limit: 2
log: {plot: false}
`, model, filepath.Join(dir, "out"), filepath.Join(dir, "train.jsonl"))
	path := filepath.Join(dir, "train.yaml")
	require.NoError(t, os.WriteFile(path, []byte(yaml), 0o666))
	c, err := config.Load(path)
	require.NoError(t, err)
	return c
}

// adapterHash returns the SHA-256 of the files of a finished adapter.
func adapterHash(t *testing.T, out, folder string) string {
	h := sha256.New()
	for _, name := range []string{"adapter_model.safetensors", "adapter_config.json", "README.md"} {
		b, err := os.ReadFile(filepath.Join(out, folder, name))
		require.NoError(t, err)
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func runToEnd(t *testing.T, c *config.Config) string {
	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	defer r.Close()
	s, err := r.Train(context.Background())
	require.NoError(t, err)
	require.Less(t, s.LastLoss, s.FirstLoss)
	return adapterHash(t, c.OutputDir, train.AdapterDir)
}

func TestThreadsDoNotMatter(t *testing.T) {
	var hashes []string
	for _, threads := range []int{1, 2, 7} {
		c := writeRun(t, t.TempDir())
		c.Threads = threads
		c.SaveSteps = 0
		c.Model, _ = filepath.Rel(".", c.Model)
		c.Model = "../../testdata/lm/llama/model" // the adapter names it: the same in each run
		hashes = append(hashes, runToEnd(t, c))
	}
	require.Equal(t, hashes[0], hashes[1])
	require.Equal(t, hashes[0], hashes[2])
}

// TestInterrupt ends the context in the middle of a run and goes on from the
// checkpoint that is saved then.
func TestInterrupt(t *testing.T) {
	want := runToEnd(t, writeRun(t, t.TempDir()))
	c := writeRun(t, t.TempDir())
	c.SaveSteps = 0
	ctx, cancel := context.WithCancel(context.Background())
	r, err := train.New(ctx, c, train.Observer{Step: func(s train.Report) {
		if s.Step == 7 {
			cancel()
		}
	}})
	require.NoError(t, err)
	_, err = r.Train(ctx)
	r.Close()
	require.ErrorIs(t, err, train.ErrInterrupted)
	require.DirExists(t, filepath.Join(c.OutputDir, "checkpoint-7"))

	_, err = train.New(context.Background(), c, train.Observer{})
	require.ErrorContains(t, err, "--resume", "a new run must not write over checkpoints")
	require.NotContains(t, err.Error(), "init_adapter", "there is no adapter yet")

	c.Resume = "latest"
	require.Equal(t, want, runToEnd(t, c))

	c = writeRun(t, filepath.Dir(c.OutputDir))
	c.Resume, c.LearningRate = "latest", 0.02
	_, err = train.New(context.Background(), c, train.Observer{})
	require.True(t, errors.Is(err, train.ErrCheckpoint), "%v", err)
	require.ErrorContains(t, err, "learning_rate was 0.01, is now 0.02")
	further := "give init_adapter: " + filepath.Join(c.OutputDir, train.AdapterDir)
	require.ErrorContains(t, err, further)
	c.Resume = ""
	_, err = train.New(context.Background(), c, train.Observer{})
	require.ErrorContains(t, err, further)
}

// TestKill kills a training process five times, at least once while it writes
// a checkpoint, and compares the adapter with that of a run left alone.
func TestKill(t *testing.T) {
	want := runToEnd(t, writeRun(t, t.TempDir()))
	dir := t.TempDir()
	c := writeRun(t, dir)
	exe, err := os.Executable()
	require.NoError(t, err)
	command := func() *exec.Cmd {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		cmd.Stderr = os.Stderr
		return cmd
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	inside := 0
	kills := 3
	if os.Getenv("LORAFUSE_LONG") != "" {
		kills = 25
	}
	for kill := range kills {
		cmd := command()
		require.NoError(t, cmd.Start())
		if kill%2 == 0 {
			if awaitCheckpoint(c.OutputDir, 30*time.Second) {
				inside++
			}
		} else {
			time.Sleep(time.Duration(20+random.IntN(150)) * time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if _, err := os.Stat(filepath.Join(c.OutputDir, train.AdapterDir)); err == nil {
			break // it had finished before
		}
	}
	require.Positive(t, inside, "no kill fell into the writing of a checkpoint")
	require.NoError(t, command().Run())
	require.Equal(t, want, adapterHash(t, c.OutputDir, train.AdapterDir))
}

// awaitCheckpoint waits until a checkpoint is being written: a folder with a
// temporary name that holds a file already.
func awaitCheckpoint(out string, most time.Duration) bool {
	for end := time.Now().Add(most); time.Now().Before(end); {
		found, _ := filepath.Glob(filepath.Join(out, ".tmp-*checkpoint*", "*"))
		if len(found) > 0 {
			return true
		}
	}
	return false
}
