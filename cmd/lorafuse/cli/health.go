package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// lastStep is the metric for the end time of the last optimizer step, in Unix seconds.
const lastStep = "lorafuse_train_last_step_timestamp_seconds"

func (a *app) health() *cobra.Command {
	var addr string
	var stalled, timeout time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use:   "health",
		Short: "Check that a training run is alive and making progress",
		Long: `Query the training run in this container or on this machine. If the run is healthy, the
exit status is 0. The container images use this command as their health check.

A run that listens on --metrics-addr must respond within --timeout and must have
finished a step within --stalled. If nothing listens there, no run is checked and the
command succeeds.`,
		Example: "  lorafuse health\n  lorafuse health --metrics-addr :9400 --stalled 5m",
		Args:    args(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if stalled <= 0 || timeout <= 0 {
				return usagef(c.CommandPath(), "--stalled %v, --timeout %v: expected more than 0", stalled, timeout)
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			h, err := askHealth(ctx, addr, stalled, time.Now())
			if err != nil {
				return fmt.Errorf("health: %w", err)
			}
			if asJSON {
				return a.out.json(h)
			}
			a.out.printf("%s\n", h)
			return nil
		},
	}
	c.Flags().StringVar(&addr, "metrics-addr", ":9400", "metrics address of the run")
	c.Flags().DurationVar(&stalled, "stalled", 30*time.Minute, "maximum time since the last step")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "maximum response time")
	return c
}

// runHealth describes a healthy run. `health --json` prints it.
type runHealth struct {
	Address string `json:"address"`
	// Running is false if nothing listens at the address.
	Running bool `json:"running"`
	Step    int  `json:"step"`
	Steps   int  `json:"steps"`
	// SecondsAgo is the time since the last step ended, or nil before the first step.
	SecondsAgo *int64 `json:"seconds_ago"`
}

func (h *runHealth) String() string {
	switch {
	case !h.Running:
		return "nobody listens at " + h.Address + ": no run to ask"
	case h.SecondsAgo == nil:
		return "the run has not ended its first step"
	}
	return fmt.Sprintf("step %d of %d ended %v ago", h.Step, h.Steps, time.Duration(*h.SecondsAgo)*time.Second)
}

// askHealth reads the metrics of the run at addr. It fails unless the run is healthy.
func askHealth(ctx context.Context, addr string, stalled time.Duration, now time.Time) (*runHealth, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: found %q, expected HOST:PORT or :PORT", addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // by its number: an image from scratch knows no names
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: found %q: %w", addr, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	r, err := client.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return &runHealth{Address: addr}, nil
	}
	if err != nil {
		return nil, differs("the run at %s: %v", addr, err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, differs("the run at %s answers %s", addr, r.Status)
	}
	values := map[string]float64{}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				values[name] = v
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, differs("the run at %s: %v", addr, err)
	}
	steps, ours := values["lorafuse_train_steps"]
	if !ours {
		return nil, differs("what answers at %s is no run of this program", addr)
	}
	h := &runHealth{Address: addr, Running: true, Step: int(values["lorafuse_train_step"]), Steps: int(steps)}
	ended, any := values[lastStep]
	if !any {
		return h, nil
	}
	ago := now.Sub(time.UnixMicro(int64(1e6 * ended))).Truncate(time.Second)
	if ago > stalled {
		return nil, differs("step %d of %d ended %v ago, and none since", h.Step, h.Steps, ago)
	}
	seconds := int64(ago / time.Second)
	h.SecondsAgo = &seconds
	return h, nil
}
