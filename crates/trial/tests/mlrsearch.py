# Runs MLRsearch 1.2.1 over trials of whoever is at the other end: writes "LOAD SECONDS", reads "SENT RECEIVED". In the end it
# writes "result" and for each goal the conditional throughput, lower and upper bound. Arguments: lowest and highest load, and for
# each goal its loss ratio, exceed ratio, initial and final trial duration, and duration sum.
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal


class Pipe(AbstractMeasurer):
    def measure(self, intended_duration, intended_load):
        print(repr(intended_load), repr(intended_duration), flush=True)
        sent, received = map(int, sys.stdin.readline().split())
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=sent,
            forwarding_count=received,
        )


for line in sys.stdin:
    low, high, *numbers = map(float, line.split())
    config = Config()
    config.max_load = high
    config.min_load = low
    names = ("loss_ratio", "exceed_ratio", "initial_trial_duration", "final_trial_duration", "duration_sum")
    goals = [numbers[at : at + len(names)] for at in range(0, len(numbers), len(names))]
    config.goals = [SearchGoal(**dict(zip(names, goal)), fail_fast=False) for goal in goals]
    results = MultipleLossRatioSearch(config).search(Pipe())
    show = lambda bound: repr(float(bound)) if bound is not None else "0"
    found = [
        (show(result.conditional_throughput), show(result.relevant_lower_bound), show(result.relevant_upper_bound))
        for result in results.values()
    ]
    print("result", *(number for goal in found for number in goal), flush=True)
