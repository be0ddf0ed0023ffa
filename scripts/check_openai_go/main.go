// Command check_openai_go checks the responses of a server, values included, with OpenAI's
// Go client.
//
//	cd scripts/check_openai_go && go run . -url http://127.0.0.1:8000 [-key KEY] [-adapter NAME] [-embeddings]
//
// It is a separate module, so that other builds do not download the client.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

func main() {
	url := flag.String("url", "", "address of the server")
	key := flag.String("key", "none", "API key")
	adapter := flag.String("adapter", "", "an adapter that is loaded")
	embeddings := flag.Bool("embeddings", false, "check vectors alone")
	flag.Parse()
	if *url == "" {
		fmt.Fprintln(os.Stderr, "check_openai_go: -url is missing")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := &checker{
		ctx: ctx, adapter: *adapter,
		client: openai.NewClient(option.WithBaseURL(strings.TrimSuffix(strings.TrimSuffix(*url, "/"), "/v1")+"/v1"), option.WithAPIKey(*key), option.WithMaxRetries(0)),
	}
	c.check("models", c.models)
	if *embeddings {
		c.check("embeddings", c.embeddings)
	} else {
		c.check("chat", c.chat)
		c.check("stream", c.stream)
		c.check("tools", c.tools)
		c.check("schema", c.schema)
		c.check("completions", c.completions)
		c.check("errors", c.errors)
		c.check("many at once", c.many)
	}
	fmt.Printf("%d passed, %d failed\n", c.passed, c.failed)
	if c.failed > 0 {
		os.Exit(1)
	}
}

type checker struct {
	ctx            context.Context
	client         openai.Client
	model, adapter string
	passed, failed int
}

// check runs one check and prints its result.
func (c *checker) check(name string, f func() error) {
	if err := f(); err != nil {
		c.failed++
		fmt.Printf("FAULT  %s: %v\n", name, err)
		return
	}
	c.passed++
	fmt.Printf("ok     %s\n", name)
}

func (c *checker) params(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: c.model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
		Temperature: openai.Float(0), MaxCompletionTokens: openai.Int(12),
	}
}

func (c *checker) models() error {
	var names []string
	pages := c.client.Models.ListAutoPaging(c.ctx)
	for pages.Next() {
		names = append(names, pages.Current().ID)
	}
	if err := pages.Err(); err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("no models")
	}
	c.model = names[0]
	one, err := c.client.Models.Get(c.ctx, c.model)
	if err != nil {
		return err
	}
	if one.ID != c.model {
		return fmt.Errorf("found %q, expected %q", one.ID, c.model)
	}
	return nil
}

func (c *checker) chat() error {
	a, err := c.client.Chat.Completions.New(c.ctx, c.params("Say it."))
	if err != nil {
		return err
	}
	b, err := c.client.Chat.Completions.New(c.ctx, c.params("Say it."))
	if err != nil {
		return err
	}
	switch u := a.Usage; {
	case len(a.Choices) != 1 || a.Choices[0].Message.Role != "assistant" || a.Model != c.model:
		return fmt.Errorf("found %s", a.RawJSON())
	case a.Choices[0].Message.Content != b.Choices[0].Message.Content:
		return errors.New("two greedy answers differ")
	case u.PromptTokens == 0 || u.CompletionTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens:
		return fmt.Errorf("usage %s", u.RawJSON())
	}
	if c.adapter == "" {
		return nil
	}
	p := c.params("Say it.")
	p.Model = c.adapter
	a, err = c.client.Chat.Completions.New(c.ctx, p)
	if err == nil && a.Model != c.adapter {
		err = fmt.Errorf("the model is %q, expected %q", a.Model, c.adapter)
	}
	return err
}

// streamed collects a stream with the client's accumulator.
func (c *checker) streamed(p openai.ChatCompletionNewParams) (openai.ChatCompletionAccumulator, error) {
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := c.client.Chat.Completions.NewStreaming(c.ctx, p)
	defer s.Close()
	var all openai.ChatCompletionAccumulator
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			return all, fmt.Errorf("the client rejects %s", s.Current().RawJSON())
		}
	}
	if err := s.Err(); err != nil {
		return all, err
	}
	if len(all.Choices) != 1 || all.Choices[0].FinishReason == "" || all.Usage.CompletionTokens == 0 {
		return all, fmt.Errorf("choices %v, usage %v", all.Choices, all.Usage)
	}
	return all, nil
}

func (c *checker) stream() error {
	whole, err := c.client.Chat.Completions.New(c.ctx, c.params("Größe 日本 🙂"))
	if err != nil {
		return err
	}
	all, err := c.streamed(c.params("Größe 日本 🙂"))
	if err != nil {
		return err
	}
	if got, want := all.Choices[0].Message.Content, whole.Choices[0].Message.Content; got != want {
		return fmt.Errorf("streamed %q, whole %q", got, want)
	}
	if all.Usage.TotalTokens != whole.Usage.TotalTokens {
		return fmt.Errorf("usage %v, expected %v", all.Usage, whole.Usage)
	}
	return nil
}

var parameters = map[string]any{
	"type": "object", "properties": map[string]any{"days": map[string]any{"type": "integer", "minimum": 1, "maximum": 9}, "unit": map[string]any{"enum": []string{"c", "f"}}},
	"required": []string{"days", "unit"}, "additionalProperties": false,
}

func fits(text string) error {
	var v struct {
		Days int
		Unit string
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	if v.Days < 1 || v.Days > 9 || v.Unit != "c" && v.Unit != "f" {
		return fmt.Errorf("%q does not fit the schema", text)
	}
	return nil
}

func (c *checker) tools() error {
	p := c.params("The weather?")
	p.MaxCompletionTokens = openai.Int(200)
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "get_weather", Description: openai.String("The weather."), Strict: openai.Bool(true), Parameters: parameters,
	})}
	p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "get_weather"})
	whole, err := c.client.Chat.Completions.New(c.ctx, p)
	if err != nil {
		return err
	}
	all, err := c.streamed(p)
	if err != nil {
		return err
	}
	one, other := whole.Choices[0].Message.ToolCalls, all.Choices[0].Message.ToolCalls
	if len(one) != 1 || len(other) != 1 || one[0].Function.Name != "get_weather" || one[0].Function.Arguments != other[0].Function.Arguments || other[0].ID == "" {
		return fmt.Errorf("whole %s, streamed %v", whole.RawJSON(), other)
	}
	if err := fits(one[0].Function.Arguments); err != nil {
		return err
	}
	// The answer of the model is sent back unchanged.
	p.Messages = append(p.Messages, whole.Choices[0].Message.ToParam(), openai.ToolMessage("12 degrees", one[0].ID))
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")}
	last, err := c.client.Chat.Completions.New(c.ctx, p)
	if err == nil && len(last.Choices[0].Message.ToolCalls) > 0 {
		err = errors.New("a call with tool_choice none")
	}
	return err
}

func (c *checker) schema() error {
	p := c.params("A forecast.")
	p.MaxCompletionTokens = openai.Int(100)
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "forecast", Strict: openai.Bool(true), Schema: parameters,
	}}
	a, err := c.client.Chat.Completions.New(c.ctx, p)
	if err != nil {
		return err
	}
	return fits(a.Choices[0].Message.Content)
}

func (c *checker) completions() error {
	a, err := c.client.Completions.New(c.ctx, openai.CompletionNewParams{
		Model: openai.CompletionNewParamsModel(c.model), Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"one", "two", "one"}},
		Temperature: openai.Float(0), MaxTokens: openai.Int(5), Logprobs: openai.Int(2),
	})
	if err != nil {
		return err
	}
	if len(a.Choices) != 3 || a.Choices[0].Text != a.Choices[2].Text || len(a.Choices[0].Logprobs.TokenLogprobs) == 0 {
		return fmt.Errorf("found %s", a.RawJSON())
	}
	return nil
}

func (c *checker) errors() error {
	for _, x := range []struct {
		change func(*openai.ChatCompletionNewParams)
		status int
		param  string
	}{
		{func(p *openai.ChatCompletionNewParams) { p.Model = "no-such" }, 404, "model"},
		{func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(-1) }, 400, "temperature"},
		{func(p *openai.ChatCompletionNewParams) { p.Messages = nil }, 400, "messages"},
	} {
		p := c.params("x")
		x.change(&p)
		_, err := c.client.Chat.Completions.New(c.ctx, p)
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != x.status || e.Param != x.param || e.Message == "" {
			return fmt.Errorf("found %v, expected %d for %s", err, x.status, x.param)
		}
	}
	return nil
}

// many requests streams concurrently and cancels every other one before its end.
func (c *checker) many() error {
	want, err := c.client.Chat.Completions.New(c.ctx, c.params("Say it."))
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	faults := make(chan error, 32)
	for i := range 32 {
		group.Go(func() {
			if i%2 == 1 {
				s := c.client.Chat.Completions.NewStreaming(c.ctx, c.params("Leave it."))
				s.Next()
				faults <- s.Close()
				return
			}
			all, err := c.streamed(c.params("Say it."))
			if err == nil && all.Choices[0].Message.Content != want.Choices[0].Message.Content {
				err = fmt.Errorf("found %q, expected %q as alone", all.Choices[0].Message.Content, want.Choices[0].Message.Content)
			}
			faults <- err
		})
	}
	group.Wait()
	close(faults)
	for err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) embeddings() error {
	a, err := c.client.Embeddings.New(c.ctx, openai.EmbeddingNewParams{Model: openai.EmbeddingModel(c.model), Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b", "a"}}})
	if err != nil {
		return err
	}
	if len(a.Data) != 3 || len(a.Data[0].Embedding) == 0 || fmt.Sprint(a.Data[0].Embedding) != fmt.Sprint(a.Data[2].Embedding) || fmt.Sprint(a.Data[0].Embedding) == fmt.Sprint(a.Data[1].Embedding) {
		return fmt.Errorf("found %s", a.RawJSON())
	}
	return nil
}
