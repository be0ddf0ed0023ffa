// Command godoc teaches a small language model to write Go doc comments, on the CPU, and prints
// what it writes before and after. Arguments such as steps=100 change the settings of train.yaml.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/lorafuse/lorafuse"
)

func main() {
	ctx, dir := context.Background(), "examples/godoc/"
	recipe := must(lorafuse.ReadRecipe(dir+"train.yaml", os.Args[1:]...))
	must(0, os.RemoveAll(recipe.OutputDir))
	recipe.Log = os.Stdout
	tuned := must(lorafuse.FineTune(ctx, "", lorafuse.Data{}, recipe))
	m := must(lorafuse.Open(ctx, recipe.Config.Model, lorafuse.Options{MaxLength: 256}))
	must(0, m.LoadAdapter(ctx, "after", tuned.Adapter))
	for prompt := range strings.SplitSeq(string(must(os.ReadFile(dir+"prompts.txt"))), "\n\n") {
		fmt.Printf("\n%s\n", prompt)
		for _, adapter := range []string{"", "after"} {
			text := must(m.Complete(ctx, prompt+"\n// ", lorafuse.SamplingParams{Adapter: adapter, MaxTokens: 40}))
			line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
			fmt.Printf("  %-8s%s\n", cmp.Or(adapter, "before")+":", line)
		}
	}
	fmt.Printf("\neval loss %.4f → %.4f in %.0f s; the adapter is in %s, the plot in %s\n",
		*tuned.FirstEval, *tuned.LastEval, tuned.Duration.Seconds(), tuned.Adapter, tuned.Plot)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
