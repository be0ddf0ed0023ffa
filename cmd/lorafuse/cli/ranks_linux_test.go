package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Environment variables of the tests of ranks. scripts/test_mpi.sh sets the first two.
const (
	launcherVariable = "LORAFUSE_TEST_MPIRUN"   // mpirun or mpiexec; unset skips the tests
	programsVariable = "LORAFUSE_TEST_PROGRAMS" // folder of lorafuse, lorafuse-mpi and lorafuse-other, with other tags
	jobVariable      = "LORAFUSE_TEST_JOB"      // marks the processes of a job
)

// cluster is a lab in which a launcher starts the program.
type cluster struct {
	*lab
	launcher      string
	hydra         bool // the launcher is MPICH's
	static, ranks string
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{lab: newLab(t), launcher: os.Getenv(launcherVariable)}
	if c.launcher == "" || testing.Short() {
		t.Skip("needs MPI: make test-mpi")
	}
	version, err := exec.Command(c.launcher, "--version").CombinedOutput()
	require.NoError(t, err, string(version))
	c.hydra = bytes.Contains(version, []byte("HYDRA"))
	c.static, c.ranks = c.program("lorafuse"), c.program("lorafuse-mpi")
	return c
}

// program returns the path of a program.
func (c *cluster) program(name string) string {
	return filepath.Join(os.Getenv(programsVariable), name)
}

// output is the folder of the run.
func (c *cluster) output() string { return c.path("output") }

// alone trains in one process without a launcher and returns what it leaves.
func (c *cluster) alone(args ...string) map[string]string {
	c.t.Helper()
	require.NoError(c.t, os.RemoveAll(c.output()))
	out, err := exec.Command(c.static, append([]string{"train"}, args...)...).CombinedOutput()
	require.NoError(c.t, err, string(out))
	return c.files()
}

// job is a command line that a launcher runs on ranks.
type job struct {
	t    *testing.T
	cmd  *exec.Cmd
	mark string
	out  *os.File
	done chan struct{} // closed when the launcher has ended
}

// train starts training on ranks.
func (c *cluster) train(size int, args ...string) *job {
	return c.start(size, nil, append([]string{c.ranks, "train"}, args...)...)
}

// start starts a program on ranks. It is killed at the end of the test.
func (c *cluster) start(size int, env []string, program ...string) *job {
	args := []string{"-n", fmt.Sprint(size)}
	if !c.hydra {
		args = append([]string{"--bind-to", "none", "--oversubscribe"}, args...)
	}
	j := &job{t: c.t, mark: fmt.Sprintf("%s=%d-%d", jobVariable, os.Getpid(), time.Now().UnixNano()), done: make(chan struct{})}
	j.cmd = exec.Command(c.launcher, append(args, program...)...)
	j.cmd.Env = append(os.Environ(), append(env, j.mark)...)
	var err error
	j.out, err = os.CreateTemp(c.dir, "job-*.log")
	require.NoError(c.t, err)
	j.cmd.Stdout, j.cmd.Stderr = j.out, j.out
	require.NoError(c.t, j.cmd.Start())
	require.NoError(c.t, j.out.Close())
	go func() {
		_ = j.cmd.Wait() // whose status counts
		close(j.done)
	}()
	c.t.Cleanup(func() {
		for pid := range j.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return j
}

// output returns what the ranks have printed so far.
func (j *job) output() string {
	raw, err := os.ReadFile(j.out.Name())
	require.NoError(j.t, err)
	return string(raw)
}

// ended reports whether the launcher has ended.
func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// processes returns the environments of the processes of a job.
func (j *job) processes() map[int]string {
	all := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if env, _ := os.ReadFile(f); bytes.Contains(env, []byte(j.mark+"\x00")) {
			var pid int
			fmt.Sscanf(f, "/proc/%d/environ", &pid)
			all[pid] = string(env)
		}
	}
	return all
}

// signal sends a signal to a rank as soon as it is there.
func (j *job) signal(rank int, s syscall.Signal) {
	j.t.Helper()
	require.Eventually(j.t, func() bool {
		for pid, env := range j.processes() {
			if strings.Contains("\x00"+env, fmt.Sprintf("\x00OMPI_COMM_WORLD_RANK=%d\x00", rank)) {
				return syscall.Kill(pid, s) == nil
			}
		}
		return false
	}, time.Minute, time.Millisecond)
}

// wait returns the exit status and the output of the launcher, and fails if a process is left.
func (j *job) wait() (status int, out string) {
	j.t.Helper()
	select {
	case <-j.done:
	case <-time.After(3 * time.Minute):
		require.Fail(j.t, "the job does not end", j.output())
	}
	require.Eventually(j.t, func() bool { return len(j.processes()) == 0 }, 5*time.Second, 10*time.Millisecond, "processes of the job are left")
	return j.cmd.ProcessState.ExitCode(), j.output()
}

// files returns the files that a run has left, as hashes, but for TensorBoard's, which contain
// times. Records of metrics.jsonl come in full.
func (c *cluster) files() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	require.NoError(c.t, filepath.WalkDir(c.output(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, c.output()+"/")
		raw, err := os.ReadFile(path)
		switch {
		case strings.HasPrefix(name, "tensorboard/"):
		case name == "metrics.jsonl":
			all[name] = c.timeless(raw)
		default:
			all[name] = fmt.Sprintf("%x", sha256.Sum256(raw))
		}
		return err
	}))
	return all
}

// timeless removes from records the rates and the memory plan, in which the exchange has a part.
func (c *cluster) timeless(metrics []byte) string {
	var all strings.Builder
	for line := range strings.Lines(string(metrics)) {
		record := map[string]json.RawMessage{}
		require.NoError(c.t, json.Unmarshal([]byte(line), &record), line)
		maps.DeleteFunc(record, func(key string, _ json.RawMessage) bool {
			return strings.HasSuffix(key, "_per_second") || key == "mfu" || key == "memory_plan_bytes" || key == "recomputed_layers"
		})
		text, err := json.Marshal(record)
		require.NoError(c.t, err)
		fmt.Fprintf(&all, "%s\n", text)
	}
	return all.String()
}

// worldSizes returns the numbers of ranks to test.
func worldSizes() []int {
	if os.Getenv("LORAFUSE_LONG") == "" {
		return []int{2, 3}
	}
	return []int{1, 2, 3, 4}
}

// rows writes a file of n rows, of a line that is given a number.
func (c *cluster) rows(n int, line string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, line+"\n", i)
	}
	return c.file("rows.jsonl", all.String())
}

// config writes the settings of a run with at least four micro-batches in a step.
func (c *cluster) config(model, rows, more string) string {
	return c.file("train.yaml", fmt.Sprintf(`
model: %s
output_dir: %s
data: {train: %s, max_length: 64}
adapter: {r: 4, target_modules: all-linear}
batch_size: 2
gradient_accumulation_steps: 4
steps: 4
save_steps: 2
learning_rate: 0.01
%s`, model, c.output(), rows, more))
}

const (
	completions = `{"prompt": "after number %d", "completion": " comes the next one"}`
	godoc       = "../../../examples/godoc/"
)

// runs are training runs by name: the arguments of lorafuse train.
var runs = map[string]func(c *cluster) []string{
	"the example of the README": func(c *cluster) []string {
		args := []string{godoc + "train.yaml"}
		for _, set := range []string{
			"model=" + godoc + "model", "data.train=" + godoc + "train.jsonl", "data.eval=" + c.rows(7, completions), "output_dir=" + c.output(),
			"batch_size=2", "gradient_accumulation_steps=4", "steps=4", "warmup_steps=1", "eval_steps=2", "save_steps=2", "eval_batch_size=2",
		} {
			args = append(args, "--set", set)
		}
		return args
	},
	"dropout and DoRA and packing and 7 micro-batches": func(c *cluster) []string {
		file := c.config(llama, c.rows(60, `{"text": "row %d counts, and goes on"}`), "")
		return []string{file, "--set", "adapter.use_dora=true", "--set", "adapter.lora_dropout=0.1", "--set", "data.packing=true", "--set", "gradient_accumulation_steps=7", "--set", "batch_size=1"}
	},
	"nf4 and 8-bit moments": func(c *cluster) []string {
		file := c.config(llama, c.rows(40, completions), "quantize: nf4\noptimizer: adamw_8bit\n")
		return []string{file, "--set", "adapter.r=32"}
	},
	"experts with router loss": func(c *cluster) []string {
		model := c.copy(goldens+"/peft/base/mixtral-balance", "model")
		vocabulary := map[string]int{"[UNK]": 2}
		for i := range 40 {
			vocabulary[fmt.Sprint(i)] = 3 + i
		}
		raw, err := json.Marshal(map[string]any{
			"model":         map[string]any{"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
			"pre_tokenizer": map[string]any{"type": "Whitespace"},
		})
		require.NoError(c.t, err)
		c.file("model/tokenizer.json", string(raw))
		return []string{c.config(model, c.rows(40, `{"text": "%[1]d comes before 9 , 3 and %[1]d"}`), "")}
	},
	"preference": func(c *cluster) []string {
		return []string{c.config(llama, c.rows(20, `{"prompt": "after %[1]d", "chosen": " comes the next", "rejected": " comes %[1]d again"}`), "task: preference\n")}
	},
	"sequence classification": func(c *cluster) []string {
		rows := c.rows(20, `{"text": "the cat has number %[1]d", "label": "animal"}`+"\n"+`{"text": "the station, too, %[1]d", "label": "place"}`)
		return []string{c.config(goldens+"/encoders/bert", rows, "task: classification\neval_steps: 2\n"), "--set", "data.eval=" + rows}
	},
	"diffusion": func(c *cluster) []string {
		images, pipeline := c.pictures(), c.captioner()
		c.setJSON(c.path("pipeline/transformer/config.json"), map[string]any{"joint_attention_dim": 16})
		c.narrow("pipeline/transformer", 16, "txt_in.weight", "txt_norm.weight")
		out, err := exec.Command(c.static, "data", "cache", images, "--model", pipeline, "--cache", c.path("cache"), "--resolution", "48").CombinedOutput()
		require.NoError(c.t, err, string(out))
		file := c.file("train.yaml", fmt.Sprintf(`
task: diffusion
model: %s
output_dir: %s
diffusion: {images: %s, cache: %s, caption_dropout_rate: 0.3}
adapter: {r: 4}
gradient_accumulation_steps: 4
steps: 4
save_steps: 2
`, pipeline, c.output(), images, c.path("cache")))
		return []string{file}
	},
	"micro-batches cut to fit in memory": func(c *cluster) []string {
		args := []string{godoc + "train.yaml", "--memory", "114MiB"}
		for _, set := range []string{
			"model=" + godoc + "model", "data.train=" + godoc + "train.jsonl", "data.eval=", "eval_at_start=false", "eval_steps=0", "output_dir=" + c.output(),
			"batch_size=16", "gradient_accumulation_steps=2", "steps=2", "warmup_steps=1", "threads=1",
		} {
			args = append(args, "--set", set)
		}
		return args
	},
}

// TestRanks: any number of ranks leaves the files of a run alone in the static program: adapter,
// moments, records and settings.
func TestRanks(t *testing.T) {
	for name, args := range runs {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			args := args(c)
			want := c.alone(args...)
			require.Contains(t, want, "adapter/adapter_model.safetensors")
			for _, size := range worldSizes() {
				require.NoError(t, os.RemoveAll(c.output()))
				status, out := c.train(size, args...).wait()
				require.Zero(t, status, out)
				if size > 1 {
					require.Contains(t, out, fmt.Sprintf("ranks    %d, on 1 hosts", size))
				}
				require.Equal(t, strings.Contains(name, "cut"), strings.Contains(out, "micro-batches cut in 2"), out)
				require.Equal(t, want, c.files(), "%d ranks", size)
			}
		})
	}
}
