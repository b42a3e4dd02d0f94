"""Small files as rocprof 1, 2 and 3 write them, for the fuzzer."""

from __future__ import annotations

_FIRST = (
    b'"Index","KernelName","gpu-id","queue-id","grd","wgr","BeginNs","EndNs","DurationNs","FETCH_SIZE","WRITE_SIZE",'
    b'"SQ_INSTS_VALU_MFMA_MOPS_F16"\n'
    b'0,"gemm(float*, int) [clone .kd]",0,0,131072,256,1412702536508356,1412702536528996,20640,65536.0,32768.5,53687\n'
    b'1,"add [clone .kd]",0,0,65536,256,1412702536608356,1412702536628996,20640,16384.0,16384.0,0\n'
)
_SECOND = (
    b"Dispatch_ID,GPU_ID,PID,TID,Grid_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,TCC_EA_RDREQ_sum,"
    b"TCC_EA_RDREQ_32B_sum,TCC_EA_WRREQ_sum,TCC_EA_WRREQ_64B_sum\n"
    b'1,4,9,9,10,"copy(char*, char*) (.kd)",716380685145736,716380685161855,33,100.0,20.0,50.0,40.0\n'
)
_THIRD = (
    b'"Correlation_Id","Dispatch_Id","Agent_Id","Process_Id","Kernel_Name","Counter_Name","Counter_Value"\n'
    b'1,1,1,9,"a","SQ_INSTS_VALU_MFMA_MOPS_BF16",8\n1,1,1,9,"a","FETCH_SIZE",4\n1,1,1,9,"a","WRITE_SIZE",2.5\n'
)
FILES = [_FIRST, _SECOND, _THIRD]
WORDS = (b"SQ_INSTS_MFMA", b"DurationNs", b"Kernel_Name", b"Counter_Name", b"GPU_ID", b"FETCH_SIZE", b"nan", b"1e9")
_COMPUTE = (
    b"Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,SQ_INSTS_VALU_MFMA_MOPS_F16,FETCH_SIZE,WRITE_SIZE\n"
    b'0,"gemm(float*) [clone .kd]",0,64,40,5.0,2.5\n'
)
_TIMES = b'Dispatch_ID,Kernel_Name,GPU_ID,Start_Timestamp,End_Timestamp\n0,"gemm(float*)",0,7000000,7020000\n'
_SYSTEM = b"workload_name,gpu_model,gpu_arch\nrun,MI300X_A1,gfx942\n"
FOLDERS = [
    b"=== pmc_perf.csv\n" + _COMPUTE + b"=== timestamps.csv\n" + _TIMES + b"=== sysinfo.csv\n" + _SYSTEM,
    b"=== pmc_perf.csv\n" + _THIRD,
]
"""Folders of rocprof-compute, each file behind a line with its name."""
FOLDER_WORDS = (b"\n=== pmc_perf.csv\n", b"\n=== timestamps.csv\n", b"\n=== sysinfo.csv\n", b"gpu_model")
