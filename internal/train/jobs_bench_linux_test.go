package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

// BenchmarkJobs prints how many times as much processor time eight runs of batch 1 take
// one after the other as eight jobs side by side, both from opening the model to the saved
// adapters, for rows of so many tokens. "plain" are runs without batch_invariant.
func BenchmarkJobs(b *testing.B) {
	const jobs, steps = 8, 5 // and one thread: others wait in loops
	shape := checkpoint.Shape{Name: "bench", Hidden: 896, Layers: 4, Inter: 4864, Heads: 14, KVHeads: 2, Vocab: 32000, Positions: 512}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	for _, c := range []struct {
		precision string
		length    int
	}{{"bf16", 4}, {"bf16", 8}, {"bf16", 16}, {"bf16", 64}, {"f32", 8}, {"f32", 64}} {
		length := c.length
		b.Run(fmt.Sprintf("%s, %d tokens", c.precision, length), func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "rows.safetensors")
			ids := make([]int32, steps*length)
			for i := range ids {
				ids[i] = int32(i * 131 % shape.Vocab)
			}
			require.NoError(b, safetensors.WriteFile(file, []safetensors.Entry{{Name: "input_ids", DType: safetensors.I32, Shape: []int{steps, length}, Data: tensor.BytesOf(ids)}}, nil))
			base := []string{"model=" + dir, "data.train=" + file, "batch_size=1", "steps=" + fmt.Sprint(steps), "adapter.r=16", "adapter.target_modules=all-linear",
				"precision=" + c.precision, "log.plot=false", "log.tensorboard=false", "save_steps=0", "threads=1"}
			var together, alone, plain time.Duration
			for b.Loop() {
				out := b.TempDir()
				var yaml []byte
				yaml = append(yaml, "jobs:\n"...)
				for i := range jobs {
					yaml = fmt.Appendf(yaml, "  - {name: job%d, seed: %d}\n", i, i)
				}
				c, err := config.Parse("jobs", yaml, append(base, "output_dir="+out, "batch_invariant=true")...)
				require.NoError(b, err)
				began := processor(b)
				j, err := train.NewJobs(context.Background(), c, func(string) train.Observer { return train.Observer{} })
				require.NoError(b, err)
				_, err = j.Train(context.Background())
				require.NoError(b, err)
				j.Close()
				together += processor(b) - began
				for _, invariant := range []bool{true, false} {
					began := processor(b)
					for i := range jobs {
						c, err := config.Parse("alone", nil, append(base, fmt.Sprintf("seed=%d", i), "output_dir="+filepath.Join(out, fmt.Sprint(invariant, i)), fmt.Sprintf("batch_invariant=%v", invariant))...)
						require.NoError(b, err)
						r, err := train.New(context.Background(), c, train.Observer{})
						require.NoError(b, err)
						_, err = r.Train(context.Background())
						require.NoError(b, err)
						r.Close()
					}
					if took := processor(b) - began; invariant {
						alone += took
					} else {
						plain += took
					}
				}
				require.NoError(b, os.RemoveAll(out))
			}
			b.ReportMetric(alone.Seconds()/together.Seconds(), "times")
			b.ReportMetric(plain.Seconds()/together.Seconds(), "times-plain")
			b.ReportMetric(together.Seconds()/float64(b.N), "s-together")
		})
	}
}

// processor is the processor time of this process.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
