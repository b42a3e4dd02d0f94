"""Small files as nvprof prints them, for the fuzzer."""

from __future__ import annotations

_ABOUT = b"==42== NVPROF is profiling process 42, command: ./a.out\n==42== Profiling result:\n"
_TRACE = (
    b'"Start","Duration","Grid X","Size","Throughput","Device","Context","Stream","Name","Correlation_ID"\n'
    b"ms,us,,KB,GB/s,,,,,\n"
    b'1.000000,30.5,1,,,"Tesla V100-SXM2-16GB (0)","1","7","gemm(float*) [117]",9\n'
    b'1.010000,5,,1.5,0.5,"Tesla V100-SXM2-16GB (0)","1","8","[CUDA memcpy HtoD]",9\n'
)
_SUMMARY = (
    b'"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n'
    b'"GPU activities",80.0,2.0,10,200.0,190.0,230.0,"gemm(float*)"\n'
    b'"API calls",99.0,900.0,3,300.0,1.0,500.0,"cudaFree"\n'
)
_METRICS = (
    b'"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"\n'
    b'"Tesla K20c (0)","k(float*)",3,"flop_count_sp","what it is",3611549214,3611549214,3611549214\n'
    b'"Tesla K20c (0)","k(float*)",3,"alu_fu_utilization","what it is","Low (1)","Low (3)","Low (2)"\n'
)
FILES = [_ABOUT + table for table in (_TRACE, _SUMMARY, _METRICS)]
WORDS = (b"flop_count_dp", b"dram_read_bytes", b"GPU activities", b"ns", b"ms", b'"Metric Name"', b"Low (3)", b"1e9")
