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
		Short: "List compute devices, and why others are unavailable",
		Long: "List the devices of all backends, starting with the one that --backend auto selects, and\nwhy a backend is unavailable.\n\n" +
			"The CPU backend uses the best instruction set of the processor. The environment variable\n" +
			"LORAFUSE_CPU forces another: portable, avx2, avx512, avx512bf16, amx, or neon on arm64.\n\n" +
			"NVIDIA GPUs need a build with tag cuda. LORAFUSE_LIBCUDA is the path of the driver\n" +
			"library, instead of the installed one; LORAFUSE_CUDA_GRAPH=0 disables CUDA graphs.\n\n" +
			"Apple GPUs need a macOS build with cgo; the backend was never tested on one. auto selects\n" +
			"an Apple GPU only after a short self-test, or reports why not. LORAFUSE_METAL_TIER=plain\n" +
			"disables simdgroups in shaders, LORAFUSE_METAL_BFLOAT=0 the type bfloat, and\n" +
			"LORAFUSE_METAL_TABLES=0 launches that read addresses from tables.\n" +
			"LORAFUSE_METAL_COMMAND_MS is the limit of a command buffer in milliseconds (default 100).\n\n" +
			"--watch reports NVIDIA GPUs by NVML until Ctrl-C, every second or at the given interval:\nmemory, utilization, power, temperature, clocks and the reasons for throttling. With\n--json each line is an object that also has energy, PCIe, NVLink, MIG and processes.",
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
				a.out.printf("%s  %s%s (%s)\n", d, d.Name, memory, d.Detail)
			}
			for _, u := range list.Unavailable {
				a.out.printf("%s    %s\n", u.Backend, u.Reason)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().DurationVar(&every, "watch", 0, "report GPU utilization at this interval")
	c.Flags().Lookup("watch").NoOptDefVal = "1s"
	return c
}

// minWatch keeps sampling from dominating the measurement.
const minWatch = 10 * time.Millisecond

func listDevices() deviceList {
	list := deviceList{Devices: []backend.Info{}, Unavailable: []absentDevice{}}
	present := backend.Registered()
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
