package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// deviceList is the output of `devices --json`.
type deviceList struct {
	Devices     []backend.Info `json:"devices"`
	Unavailable []absentDevice `json:"unavailable"`
}

type absentDevice struct {
	Backend string `json:"backend"`
	Reason  string `json:"reason"`
}

func (a *app) devices() *cobra.Command {
	var asJSON bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the machines that can compute, and why others cannot",
		Long: "List the devices of all backends, the one that --backend auto takes first, and say\nwhy a backend is not available.\n\n" +
			"The CPU takes its best instruction set; the environment variable LORAFUSE_CPU forces\n" +
			"another: portable, avx2, avx512, avx512bf16, amx, or on arm64 neon, neonbf16.\n\n" +
			"GPUs of NVIDIA are part of builds with the tag cuda. LORAFUSE_LIBCUDA names another\n" +
			"library of the driver than the one that is installed; LORAFUSE_CUDA_GRAPH=0 has programs\n" +
			"run launch by launch.\n\n" +
			"Apple GPUs are part of builds for macOS with cgo, and tested without one: auto takes one\n" +
			"after a small self-test, and says why it does not. LORAFUSE_METAL_TIER=plain and\n" +
			"LORAFUSE_METAL_BFLOAT=0 keep its shaders from simdgroups and from the type bfloat.\n\n" +
			"--watch prints what NVIDIA GPUs do, by NVML, every second or as often as it says, until\nCtrl-C: memory, use, power, temperature, clocks and what holds them down. With --json\na line of JSON has all of it, with energy, PCIe, NVLink, MIG and processes.",
		Example: "  lorafuse devices\n  lorafuse devices --json\n  lorafuse devices --watch\n  lorafuse devices --watch=10s --json",
		Args:    args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("watch") {
				if every < minWatch {
					return fmt.Errorf("--watch: found %v, expected %v or more", every, minWatch)
				}
				return a.watchDevices(c.Context(), every, asJSON)
			}
			list := listDevices()
			if asJSON {
				return a.out.json(list)
			}
			for _, d := range list.Devices {
				memory := ""
				if d.Memory > 0 {
					memory = ", " + bytesize.Binary(d.Memory)
				}
				a.out.printf("%s:%d  %s%s (%s)\n", d.Backend, d.Index, d.Name, memory, d.Detail)
			}
			for _, u := range list.Unavailable {
				a.out.printf("%s    %s\n", u.Backend, u.Reason)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().DurationVar(&every, "watch", 0, "print what GPUs do, so often")
	c.Flags().Lookup("watch").NoOptDefVal = "1s"
	return c
}

// minWatch keeps sampling from dominating the measurement.
const minWatch = 10 * time.Millisecond

func listDevices() deviceList {
	list := deviceList{Devices: []backend.Info{}, Unavailable: []absentDevice{}}
	present := backend.Names()
	for _, name := range present {
		infos, err := backend.Devices(name)
		if err == nil && len(infos) == 0 {
			err = fmt.Errorf("backend %s: no device", name)
		}
		if err != nil {
			list.Unavailable = append(list.Unavailable, absentDevice{name, err.Error()})
		}
		list.Devices = append(list.Devices, infos...)
	}
	for _, name := range backend.Known() {
		if slices.Contains(present, name) {
			continue
		}
		_, err := backend.Devices(name)
		list.Unavailable = append(list.Unavailable, absentDevice{name, err.Error()})
	}
	return list
}
