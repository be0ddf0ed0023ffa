package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/internal/train"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // the tasks of runs
	"github.com/lorafuse/lorafuse/train/config"
)

// trainFlags holds the flags of `train`.
type trainFlags struct {
	sets   []string
	resume string
	dryRun bool
	keys   bool
	json   bool
	memory config.Bytes
	pack   backend.Pack
	load   backend.LoadMode
	start  startFlags
	saved  bool                     // all of the flags are in the file of settings
	text   func(flag string) string // returns the value of a dedicated flag, or "" if it is not set

	profile string
	metrics string
}

const latest = "latest"

func (a *app) train() *cobra.Command {
	var f trainFlags
	c := &cobra.Command{
		Use:   "train [CONFIG.yaml | --model M --data D] [--set key=value]... [--resume[=DIR]]",
		Short: "Fine-tune LoRA adapters",
		Long: `Fine-tune a LoRA adapter as configured by a YAML file, by flags, or by both. lorafuse
config describes the keys; --set overrides one, with dots between section and key.

Without a file, --model and --data are enough: the task follows from the columns of the
data, and the other settings from model, data and memory. They are printed and saved in
output_dir/train.yaml; lorafuse train output/train.yaml repeats the run, bit for bit.
lorafuse init writes the same settings, with comments, without training.

The run prints its memory plan first and stops if the plan does not fit. With --memory it
selects the fastest plan within the limit. It recomputes the fewest layers in the
backward pass, without changing a bit of the result; if that is not enough, it splits
micro-batches, whose gradients add up to the same except for rounding.

output_dir receives the adapter in PEFT's format, the checkpoints, metrics.jsonl,
TensorBoard events and the plot of the loss; with save_best also the adapter of the best
evaluation, and with sample_every generated texts. A second run in the same folder is
rejected while one is active. A file with jobs trains several adapters together on one
model, each with the result of a run of its own. Ctrl-C saves a checkpoint of the last
complete step. A resumed run gives the same losses, evaluations and adapter, bit for bit,
as one that was never interrupted.`,
		Example: `  lorafuse train --model Qwen/Qwen2.5-0.5B-Instruct --data train.csv
  lorafuse train --model path/to/model --data train.jsonl --epochs 2 --learning-rate 1e-4 --output mine
  lorafuse train config.yaml
  lorafuse train config.yaml --set learning_rate=1e-4 --set adapter.r=16
  lorafuse train config.yaml --set 'data.train=[a.jsonl, b.jsonl]' --dry-run
  lorafuse train config.yaml --memory 4GiB
  lorafuse train config.yaml --metrics-addr :9400
  lorafuse train config.yaml --resume
  lorafuse train config.yaml --resume output/checkpoint-200`,
		Args: func(c *cobra.Command, given []string) error {
			if f.keys {
				return args(0)(c, given)
			}
			if len(given) == 0 {
				return f.start.check(c.CommandPath(), f.sets)
			}
			return args(2)(c, given)
		},
		RunE: func(c *cobra.Command, given []string) error {
			if f.keys {
				a.out.printf("%s", config.Reference())
				return nil
			}
			f.text = func(flag string) string { return c.Flags().Lookup(flag).Value.String() }
			file, err := f.configFile(c, given)
			if err != nil {
				return err
			}
			return a.runTraining(c.Context(), file, &f)
		},
	}
	flags := c.Flags()
	f.start.flags(c)
	flags.StringArrayVar(&f.sets, "set", nil, "override a configuration key: key=value (repeatable)")
	flags.StringVar(&f.resume, "resume", "", "resume from the newest checkpoint in output_dir, or from a checkpoint folder")
	flags.Lookup("resume").NoOptDefVal = latest
	flags.BoolVar(&f.dryRun, "dry-run", false, "read everything, print the memory plan and stop before the first step")
	flags.BoolVar(&f.keys, "keys", false, "print the configuration keys, like lorafuse config")
	flags.Var(&word{to: &f.memory, takes: "bytes, such as 8GiB"}, "memory", "memory limit, such as 4GiB (key memory)")
	choose(flags, &f.pack, "pack", "", backend.PackModes(), "packed copies of frozen weights: never, auto or always (key pack)")
	choose(flags, &f.load, "load", "", backend.LoadModes(), "upload method for devices with their own memory: auto, ring, register or plain (key load)")
	flags.StringVar(&f.profile, "profile", "", profileUsage)
	flags.StringVar(&f.metrics, "metrics-addr", "", "address of Prometheus metrics during the run, such as :9400")
	flags.BoolVar(&f.json, "json", false, "print the summary as JSON")
	return c
}

// configFile separates the configuration from the checkpoint: the value of --resume is optional and may follow a
// space.
func (f *trainFlags) configFile(c *cobra.Command, args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	if len(args) == 1 {
		if info, err := os.Stat(args[0]); f.resume == latest && f.start.given() && err == nil && info.IsDir() {
			f.resume = args[0]
			return "", nil
		}
		return args[0], nil
	}
	if f.resume == latest {
		for i, arg := range args {
			if info, err := os.Stat(arg); arg == latest || err == nil && info.IsDir() {
				f.resume = arg
				return args[1-i], nil
			}
		}
	}
	return "", usagef(c.CommandPath(), "unexpected argument %q", args[1])
}

// runTraining runs one configuration and prints the result.
func (a *app) runTraining(ctx context.Context, file string, f *trainFlags) (err error) {
	if f.dryRun {
		if launch, _ := dist.Launched(); launch != nil && launch.Rank > 0 {
			return nil // rank 0 plans
		}
	} else if err := a.connect(ctx); err != nil {
		return err
	}
	var c *config.Config
	if err := train.Ready(ctx, a.world, func() (err error) {
		c, err = a.configure(ctx, file, f)
		return err
	}); err != nil {
		return err
	}
	if f.text("load") != "" {
		defer func() {
			if errors.Is(err, backend.ErrLoad) {
				err = fmt.Errorf("--%w", err) // the message starts with the key
			}
		}()
	}
	if c.Jobs.Len() > 0 {
		return a.runJobs(ctx, c, file, f)
	}
	if f.dryRun {
		return a.dryRun(ctx, c, f.json)
	}
	if !a.leads() {
		return a.follow(ctx, c)
	}
	made := firstMissing(c.OutputDir)
	var l *onlooker
	if err := train.Ready(ctx, a.world, func() (err error) {
		l, err = a.lookOn(c, f)
		return err
	}); err != nil {
		return err
	}
	defer l.close()
	r, err := train.NewRank(ctx, a.world, c, l.observer(""))
	if err != nil {
		removeEmpty(c.OutputDir, made)
		return err
	}
	defer r.Close()
	l.on(r.Device())
	if err := train.Ready(ctx, a.world, func() (err error) {
		file, err = a.saveSettings(c, file, f)
		return err
	}); err != nil {
		return err
	}
	s, err := r.Train(ctx)
	l.finish()
	if errors.Is(err, train.ErrInterrupted) {
		return &interrupted{fmt.Errorf("%w: %s", err, a.again(file, f, !errors.Is(err, train.ErrNothingNew)))}
	}
	if err != nil {
		return &failure{err} // all that was given has been read and checked
	}
	if f.json {
		return a.out.json(s)
	}
	a.summarize(c, s)
	return nil
}

// deviceFlags are flags that set the key of the same name.
var deviceFlags = []string{"memory", "pack", "load"}

// assignments returns all flags that set keys in the form of --set.
func (f *trainFlags) assignments() []string {
	sets := append(f.start.assignments(), f.sets...)
	for _, flag := range deviceFlags {
		if text := f.text(flag); text != "" {
			sets = append(sets, flag+"="+text)
		}
	}
	return sets
}

// onlooker watches the machine and the launches while something trains.
type onlooker struct {
	*watched
	app     *app
	profile *profiler
}

// lookOn starts to monitor a run.
func (a *app) lookOn(c *config.Config, f *trainFlags) (*onlooker, error) {
	l := &onlooker{app: a}
	var err error
	if l.watched, err = a.watch(f.metrics); err != nil {
		return nil, err
	}
	if l.profile, err = a.profiler(f.profile, c.Backend, c.DeviceOptions()); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *onlooker) close() {
	l.profile.abort()
	_ = l.watched.close()
}

// finish ends the display, and writes the profile.
func (l *onlooker) finish() {
	l.app.close()
	if err := l.profile.finish(); err != nil {
		l.app.note("note     %v", err)
	}
}

// observer shows a run, or a job under its name.
func (l *onlooker) observer(job string) train.Observer {
	a, task, from := l.app, "training", ofJob(job)
	if job != "" {
		task += " " + job
	}
	return train.Observer{
		Figures: l.figures,
		Note:    func(text string) { a.note("%s%s", from, text) },
		Load:    a.loading(),
		Step:    a.trained(l.watched, task, from),
		Profile: l.profile.launches(),
	}
}

// trained shows the steps of a task; notes begin with from.
func (a *app) trained(w *watched, task, from string) func(train.Report) {
	var mfu string // of the last step that it is known of
	return func(r train.Report) {
		w.see(r)
		if r.MFU > 0 {
			mfu = fmt.Sprintf(", MFU %.1f %%", 100*r.MFU)
		}
		a.progress().Steps(task, int64(r.Step), int64(r.Steps),
			fmt.Sprintf("loss %.4f, lr %.3g, %s%s%s", r.Loss, r.LearningRate, speed(r.TokensPerSecond, r.Unit), mfu, w.tail()))
		if r.Accuracy != nil {
			a.note("%seval     loss %.4f, accuracy %.1f %% after step %d", from, *r.Eval, 100**r.Accuracy, r.Step)
		} else if r.Eval != nil {
			a.note("%seval     loss %.4f after step %d", from, *r.Eval, r.Step)
		}
	}
}

// speed formats a rate per second; an empty unit means tokens.
func speed(perSecond float64, unit string) string {
	if unit == "images" && perSecond < 100 { // most take seconds
		return fmt.Sprintf("%.3g images/s", perSecond)
	}
	return fmt.Sprintf("%.0f %s/s", perSecond, cmp.Or(unit, "tokens"))
}

// dryRunReport is the output of `train --dry-run --json`.
type dryRunReport struct {
	Notes  []string     `json:"notes"`
	Memory train.Memory `json:"memory"`
	Fit    train.Fit    `json:"plan"`
}

// dryRun does everything except training. If the output folder does not exist, it is not created.
func (a *app) dryRun(ctx context.Context, c *config.Config, asJSON bool) error {
	if _, err := os.Stat(c.OutputDir); errors.Is(err, fs.ErrNotExist) {
		tmp, err := os.MkdirTemp("", "lorafuse-dry-run-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		c.MoveOutput(tmp)
	}
	var p dryRunReport
	var err error
	p.Memory, p.Fit, err = train.DryRun(ctx, c, train.Observer{
		Note: func(text string) { p.Notes = append(p.Notes, text) },
		Load: a.loading(),
	})
	if err != nil {
		return err
	}
	return a.planned(p, asJSON)
}

// planned prints the result of a dry run.
func (a *app) planned(p dryRunReport, asJSON bool) error {
	a.close()
	if asJSON {
		return a.out.json(p)
	}
	for _, n := range p.Notes {
		a.out.printf("%s\n", n)
	}
	return nil
}

// summarize prints the end of a run.
func (a *app) summarize(c *config.Config, s *train.Summary) {
	a.out.printf("done     %d steps in %.1f s, %s\n", s.Steps, s.Seconds, speed(s.TokensPerSecond, s.Unit))
	a.out.printf("loss     %.4f → %.4f\n", s.FirstLoss, s.LastLoss)
	switch first, last := s.FirstEval, s.LastEval; {
	case first == nil || last == nil:
	case *first == *last:
		a.out.printf("eval     %.4f\n", *last)
	default:
		a.out.printf("eval     %.4f → %.4f\n", *first, *last)
	}
	if s.Accuracy != nil {
		a.out.printf("accuracy %.1f %%\n", 100**s.Accuracy)
	}
	a.out.printf("adapter  %s\n", s.Adapter)
	if b := s.Best; b != nil {
		a.out.printf("best     %s, %s %.4f at step %d\n", b.Adapter, b.Metric, b.Value, b.Step)
	}
	if s.Plot != "" {
		a.out.printf("plot     %s\n", s.Plot)
	}
	a.out.printf("use it   lorafuse %s\n", toUse(c, s.Adapter))
}

// toUse returns a command that tries out an adapter.
func toUse(c *config.Config, adapter string) string {
	try := train.TryOut(c)
	words := []string{try.Command}
	for _, w := range append(try.Model, "--adapter", adapter) {
		words = append(words, shellWord(w))
	}
	return strings.Join(append(words, try.Input), " ")
}

// again returns the command line that resumes an interrupted run.
func (a *app) again(file string, f *trainFlags, saved bool) string {
	words := []string{"lorafuse", "train", shellWord(file)}
	var sets, flags []string
	if !f.saved { // else the file has them
		sets, flags = append(f.start.assignments(), f.sets...), deviceFlags
	}
	for _, s := range sets {
		words = append(words, "--set", shellWord(s))
	}
	switch {
	case saved || f.resume == latest:
		words = append(words, "--resume")
	case f.resume != "":
		words = append(words, "--resume="+shellWord(f.resume))
	}
	for _, flag := range flags {
		if text := f.text(flag); text != "" {
			words = append(words, "--"+flag, shellWord(text))
		}
	}
	if f.json {
		words = append(words, "--json")
	}
	return strings.Join(words, " ")
}

// shellWord quotes a word for a shell if needed.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,@%+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// firstMissing returns the topmost folder of path that does not exist, or "".
func firstMissing(path string) string {
	missing := ""
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if _, err := os.Lstat(p); err == nil || p == filepath.Dir(p) {
			return missing
		}
		missing = p
	}
}

// removeEmpty removes the empty folders from path up to top, which were made
// for a run that did not begin.
func removeEmpty(path, top string) {
	if top == "" {
		return
	}
	for p := filepath.Clean(path); os.Remove(p) == nil && p != top; p = filepath.Dir(p) {
	}
}
