package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report holds the measurements, in seconds.
type report struct {
	Requests int    `json:"requests"`
	Failed   int    `json:"failed"`
	Error    string `json:"error,omitempty"` // the first

	Seconds         float64 `json:"seconds"` // from the first that was due to the last answer
	PromptTokens    int     `json:"prompt_tokens"`
	Tokens          int     `json:"tokens"` // of the answers
	TokensPerSecond float64 `json:"tokens_per_second"`

	FirstToken quantiles `json:"time_to_first_token"`
	Between    quantiles `json:"time_between_tokens"` // of all answers: pieces of text, mostly a token each
	Answer     quantiles `json:"time_to_answer"`
}

// quantiles holds quantiles of durations.
type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// newQuantiles computes quantiles by nearest rank.
func newQuantiles(times []time.Duration) (q quantiles) {
	if len(times) == 0 {
		return q
	}
	slices.Sort(times)
	at := func(percent int) float64 { return times[(len(times)*percent+99)/100-1].Seconds() }
	return quantiles{at(50), at(99), at(100)}
}

func newReport(samples []sample) report {
	r := report{Requests: len(samples)}
	var first, between, answer []time.Duration
	var end time.Duration
	for _, s := range samples {
		end = max(end, s.end)
		if s.err != nil {
			if r.Failed++; r.Error == "" {
				r.Error = s.err.Error()
			}
			continue
		}
		r.PromptTokens += s.prompt
		r.Tokens += s.tokens
		answer = append(answer, s.end-s.due)
		for i, at := range s.chunks {
			if i == 0 {
				first = append(first, at-s.due)
			} else {
				between = append(between, at-s.chunks[i-1])
			}
		}
	}
	r.Seconds = (end - samples[0].due).Seconds()
	if r.Seconds > 0 {
		r.TokensPerSecond = float64(r.Tokens) / r.Seconds
	}
	r.FirstToken, r.Between, r.Answer = newQuantiles(first), newQuantiles(between), newQuantiles(answer)
	return r
}

// table prints the report for people.
func (r report) table(out io.Writer) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "requests\t%d\t%d failed\n", r.Requests, r.Failed)
	fmt.Fprintf(w, "tokens\t%d\tof prompts\t%d\n", r.Tokens, r.PromptTokens)
	fmt.Fprintf(w, "tokens/s\t%.1f\tin %.2f s\n", r.TokensPerSecond, r.Seconds)
	fmt.Fprintf(w, "\tp50 ms\tp99 ms\tmax ms\n")
	for _, row := range []struct {
		name string
		q    quantiles
	}{{"first token", r.FirstToken}, {"between tokens", r.Between}, {"answer", r.Answer}} {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\n", row.name, 1e3*row.q.P50, 1e3*row.q.P99, 1e3*row.q.Max)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}
