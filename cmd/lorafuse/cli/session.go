package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
)

// modelFlags name a model, its adapter and the machine that runs them.
type modelFlags struct {
	command   string // the command to which these flags belong
	set       *pflag.FlagSet
	model     string
	adapter   string
	backend   string
	devices   string // only if the command has the flag; empty means the first
	threads   int
	precision backend.Precision
	quantize  quant.Method // only if the command has the flag
	pack      backend.Pack
	load      backend.LoadMode
	invariant bool
	profile   string // folder; only if the command has the flag
	part      model.Part
	// classifies reports that the command also supports classifiers.
	classifies bool
}

// flags adds --model and --adapter.
func (f *modelFlags) flags(c *cobra.Command) {
	f.modelFlag(c)
	c.Flags().StringVarP(&f.adapter, "adapter", "a", "", "PEFT adapter folder")
}

// modelFlag adds --model.
func (f *modelFlags) modelFlag(c *cobra.Command) {
	f.command, f.set = c.Name(), c.Flags()
	c.Flags().StringVarP(&f.model, "model", "m", "", "Hugging Face model folder, or owner/name[@revision] on the Hub")
}

// machineFlags adds --backend and --threads.
func (f *modelFlags) machineFlags(c *cobra.Command) {
	c.Flags().StringVar(&f.backend, "backend", backend.Auto, "device: "+backend.Choices)
	choose(c.Flags(), &f.precision, "precision", backend.AutoPrecision.String(), backend.Precisions(), "precision of matrix multiplications: auto (f32 on the CPU, bf16 on CUDA), f32, or bf16 if that is faster on the device")
	choose(c.Flags(), &f.pack, "pack", backend.PackNever.String(), backend.PackModes(), "packed copies of the weights, for speed: never, always, or auto (if they gain 3 % and fit half of the free memory); results are the same")
	choose(c.Flags(), &f.load, "load", backend.LoadAuto.String(), backend.LoadModes(), loadUsage)
	c.Flags().BoolVar(&f.invariant, "batch-invariant", false, invariantUsage)
	c.Flags().IntVar(&f.threads, "threads", 0, "threads of the CPU backend; 0 means one per core; results do not depend on it")
}

const loadUsage = "how weights get to a device with memory of its own: ring (by slots of pinned memory), register (pinning the mapped file), plain (as the driver does it), or auto, which takes what is fastest for the first bytes; the CPU uses them in place (auto, plain)"

const invariantUsage = "make what a row gives independent, bit for bit, of the other rows of its batch and of how many they are: a layer in bf16 takes about 1.06, 0.97, 0.99 and 1.2 times as long at 1, 8, 64 and 512 rows on the CPU; CUDA cannot, and refuses"

// quantizeFlag adds --quantize.
func (f *modelFlags) quantizeFlag(c *cobra.Command) {
	choose(c.Flags(), &f.quantize, "quantize", string(quant.None), quant.Methods(), "quantize linear layers on load: none, int8 (8.5 bits per weight), nf4 (4.5) or fp8 (8)")
}

// session is an open model on a device.
type session struct {
	model   *pretrained.Model
	dev     backend.Device // the first of devices
	devices []backend.Device
	profile *profiler // nil if none is asked for
}

// open opens the model and the adapter of the flags. It opens the device first, since a missing device is cheap to detect.
func (a *app) open(ctx context.Context, f *modelFlags) (_ *session, err error) {
	s := &session{}
	o := f.machine()
	if s.profile, err = a.profiler(f.profile, f.backend, o); err != nil {
		return nil, err
	}
	o.Profile = s.profile.launches()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.devices, err = a.openDevices(f, o); err != nil {
		return nil, err
	}
	s.dev = s.devices[0]
	dir, err := a.find(ctx, f)
	if err == nil {
		s.model, err = pretrained.Open(dir, a.modelOptions(f))
	}
	if err != nil {
		return nil, err
	}
	for _, line := range s.model.Quantization().Lines() {
		a.note("%s", line)
	}
	return s, nil
}

// machine returns the device options of the flags.
func (f *modelFlags) machine() backend.Options {
	return backend.Options{Threads: f.threads, Precision: f.precision, Load: f.load, BatchInvariant: f.invariant}
}

// openDevices opens the devices of --devices, or the first one; a rank opens its own.
func (a *app) openDevices(f *modelFlags, o backend.Options) (all []backend.Device, err error) {
	indices, err := f.deviceIndices()
	if err == nil && a.world != nil {
		o, err = a.ofRank(f, indices, o)
		indices = []int{o.Index}
	}
	if err != nil {
		return nil, err
	}
	named := *f
	for _, o.Index = range indices {
		dev, err := a.openDevice(&named, o)
		if err != nil {
			for _, dev := range all {
				dev.Close()
			}
			return nil, err
		}
		all, named.backend = append(all, dev), dev.Info().Backend
	}
	return all, nil
}

// openDevice opens the machine that the flags name.
func (a *app) openDevice(f *modelFlags, o backend.Options) (backend.Device, error) {
	if f.threads < 0 {
		return nil, fmt.Errorf("--threads: found %d, expected 0 or more", f.threads)
	}
	dev, err := backend.Open(f.backend, o)
	if errors.Is(err, backend.ErrLoad) {
		return nil, fmt.Errorf("--load: %w", err)
	} else if err != nil {
		return nil, err
	}
	if f.backend == backend.Auto {
		if err := backend.SkipReason(dev.Info().Backend); err != nil {
			a.note("note     computing on %s: %v", dev.Info().Backend, err)
		}
	}
	if d, ok := dev.(backend.Memory); ok {
		d.SetPack(f.pack, 0)
	}
	return dev, nil
}

// loaded reports how the weights were uploaded to the device, or nil if they are used in place. They are uploaded when
// the first program is compiled.
func (a *app) loaded(dev backend.Device) *backend.LoadStats {
	d, ok := dev.(backend.Loader)
	if !ok {
		return nil
	}
	stats := d.Loaded()
	if stats.Bytes == 0 {
		return nil
	}
	a.note("weights  %v", stats)
	return &stats
}

// quantizing returns a function that shows the progress of quantization if it takes a while.
func (a *app) quantizing() func(done, total int64) {
	show := a.loading()
	return func(done, total int64) {
		show("quantizing weights", done, total)
		if done == total {
			a.close()
		}
	}
}

// modelOptions returns the options of the flags for a model.
func (a *app) modelOptions(f *modelFlags) pretrained.Options {
	return pretrained.Options{Adapter: f.adapter, Part: f.part, Quantize: f.quantize, Quantizing: a.quantizing(), Note: func(text string) { a.note("note     %s", text) }}
}

// openModel finds, downloads and maps the model.
func (a *app) openModel(ctx context.Context, f *modelFlags) (*model.Model, error) {
	dir, err := a.find(ctx, f)
	if err != nil {
		return nil, err
	}
	return pretrained.OpenModel(dir, a.modelOptions(f))
}

// find returns the folder of the model. It refuses an adapter of a classifier unless the command supports classifiers.
func (a *app) find(ctx context.Context, f *modelFlags) (string, error) {
	dir, err := a.resolve(ctx, f.command, f.model, hub.Options{})
	if err != nil || f.adapter == "" || f.classifies {
		return dir, err
	}
	if c, err := lora.ReadConfig(f.adapter); err == nil && c.IsClassifier() { // opening it reports errors
		return "", fmt.Errorf("%s: adapter %s is one of a classifier (task_type %s), which lorafuse eval runs and lorafuse merge puts into its model", f.command, f.adapter, lora.SequenceClassification)
	}
	return dir, nil
}

// noteSource reports the source of the weights if it is not the requested one.
func (a *app) noteSource(s weights.Source) {
	if line := s.Note(); line != "" {
		a.note("note     %s", line)
	}
}

// resolve returns the folder of a model.
func (a *app) resolve(ctx context.Context, command, name string, o hub.Options) (string, error) {
	if name == "" {
		return "", noModel("lorafuse " + command)
	}
	shown := a.hubOptions()
	o.Progress, o.Warn = shown.Progress, shown.Warn
	dir, err := hub.Resolve(ctx, name, o)
	a.close()
	return dir, err
}

func noModel(command string) error {
	return usagef(command, "--model is missing: the folder of a Hugging Face checkpoint, or owner/name on the hub")
}

func (s *session) close() {
	s.profile.abort()
	if s.model != nil {
		s.model.Close()
	}
	for _, dev := range s.devices {
		dev.Close()
	}
}
